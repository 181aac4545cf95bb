"""What ours is compared with, one file a peer."""
