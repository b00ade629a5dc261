"""Loss channels that are added to the policy term."""
