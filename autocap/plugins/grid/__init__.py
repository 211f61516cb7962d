"""Services that know the price or the carbon of electricity, each asked over the network."""
