"""Power limits for those who may not set them: a privileged service that lends them, and its client.

The service does four things and no others: it tells what it would allow, lends the limit of a device to whoever may
have it, sets it within bounds, and puts it back. docs/helper.md has the protocol.
"""
