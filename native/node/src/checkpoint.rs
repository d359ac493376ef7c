//! Binding of `mx_core::checkpoint`.
