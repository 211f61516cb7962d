"""Events of a VTN."""
