"""A run in the experiment tracker of its user: Weights & Biases, MLflow or TensorBoard.

A tracker may hang, print, ask for a password, or take seconds to be imported. So whoever talks to one follows the run
directory, as `autocap report --follow` does, and nobody waits for it: it is a process of its own (`process`), or, where
the training script itself has a run of that tracker open, a thread beside it. What is logged is the same
for all (`rows`); a module a tracker says it in that tracker's words (`sink`).
"""
