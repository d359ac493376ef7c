//! Binding of `mx_core::digest`.
