//! Lists of host names.
