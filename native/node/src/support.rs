//! Binding of `mx_core::support`.
