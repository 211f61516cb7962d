"""Members of a group as attackers of helper and budget: what they take from others, and whom they keep out."""

KIND = "members"
