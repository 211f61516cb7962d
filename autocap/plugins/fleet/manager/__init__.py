"""The process that holds a power budget on a machine: it guards the limits of its GPUs, and lends them to tuners."""
