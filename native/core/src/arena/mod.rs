//! Address space, bump allocation, life cycle.
