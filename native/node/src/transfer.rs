//! Binding of `mx_core::transfer`.
