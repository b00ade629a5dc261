"""Pages and figures made from run folders."""
