//! A call of the CUDA driver that failed.

use super::types::Status;
use crate::error::Error;

/// Function, status, and what the driver calls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub operation: &'static str,
    pub status: Status,
    /// Such as `CUDA_ERROR_OUT_OF_MEMORY`.
    pub name: String,
    /// The driver's words for it.
    pub meaning: String,
}

impl Failure {
    /// `message`, ended by what failed; facts `operation` and `status`.
    pub fn error(&self, code: &'static str, message: impl std::fmt::Display) -> Error {
        Error::new(code, format!("{message}: {self}")).with("operation", self.operation).with("status", self.name.as_str())
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} failed with {} ({})", self.operation, self.name, self.meaning)
    }
}
