"""Code that tests of several folders share: federations, records, policies, statistics, waiting."""
