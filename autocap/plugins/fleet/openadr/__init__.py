"""What a VTN, a server of OpenADR 3, allows of a power budget: its events as limits in watts, and the process that asks
for them."""
