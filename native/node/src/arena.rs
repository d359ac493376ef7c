//! Binding of `mx_core::arena`.
