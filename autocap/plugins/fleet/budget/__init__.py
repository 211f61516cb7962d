"""A power budget shared among jobs: who gets how many watts, from what each job loses by having fewer."""
