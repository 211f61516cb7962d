"""autocap/devices/emulated."""
