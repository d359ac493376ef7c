//! The one error of the native half: a stable code, a message for people, facts for programs.

use std::fmt;
use std::io;

/// A value that a fact can have; becomes a field of the JavaScript error.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    Text(String),
    Number(f64),
}

impl From<&str> for Fact {
    fn from(value: &str) -> Self {
        Fact::Text(value.to_owned())
    }
}

impl From<String> for Fact {
    fn from(value: String) -> Self {
        Fact::Text(value)
    }
}

/// Integers above 2^53 are told as text, so that no digit is lost on the way to JavaScript.
impl From<u64> for Fact {
    fn from(value: u64) -> Self {
        if value < (1 << 53) { Fact::Number(value as f64) } else { Fact::Text(value.to_string()) }
    }
}

impl From<usize> for Fact {
    fn from(value: usize) -> Self {
        Fact::from(value as u64)
    }
}

/// Every failure of this crate. `code` is one of the table in `src/error-codes.ts`.
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    pub code: &'static str,
    pub message: String,
    pub facts: Vec<(&'static str, Fact)>,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Error { code, message: message.into(), facts: Vec::new() }
    }

    /// Adds one fact.
    pub fn with(mut self, name: &'static str, value: impl Into<Fact>) -> Self {
        self.facts.push((name, value.into()));
        self
    }

    /// Adds the errno of a failed system call as `errno` (name) and `operation`, and ends the
    /// message with its meaning.
    pub fn caused_by(mut self, operation: &'static str, cause: &io::Error) -> Self {
        let number = cause.raw_os_error().unwrap_or(0);
        self.message = format!("{}: {}", self.message, describe_errno(number, cause));
        self.of_call(operation, number)
    }

    /// Adds the same facts where the message says what is the matter, and only names the errno.
    pub fn named_by(mut self, operation: &'static str, number: i32) -> Self {
        self.message = format!("{} ({})", self.message, errno_name(number));
        self.of_call(operation, number)
    }

    fn of_call(self, operation: &'static str, number: i32) -> Self {
        self.with("operation", operation).with("errno", errno_name(number))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for Error {}

fn describe_errno(number: i32, cause: &io::Error) -> String {
    let text = cause.to_string();
    let meaning = text.split(" (os error").next().unwrap_or(&text);
    let mut letters = meaning.chars();
    let first = letters.next().map(|letter| letter.to_ascii_lowercase());
    format!("{}{} ({})", first.map(String::from).unwrap_or_default(), letters.as_str(), errno_name(number))
}

/// Symbolic name of an errno value, as in errno(3); `E<number>` for the rare ones not listed.
pub fn errno_name(number: i32) -> String {
    let name = match number {
        0 => "none",
        libc::EPERM => "EPERM",
        libc::ENOENT => "ENOENT",
        libc::EINTR => "EINTR",
        libc::EIO => "EIO",
        libc::EBADF => "EBADF",
        libc::EAGAIN => "EAGAIN",
        libc::ENOMEM => "ENOMEM",
        libc::EACCES => "EACCES",
        libc::EFAULT => "EFAULT",
        libc::EBUSY => "EBUSY",
        libc::EEXIST => "EEXIST",
        libc::ENODEV => "ENODEV",
        libc::ENOTDIR => "ENOTDIR",
        libc::EISDIR => "EISDIR",
        libc::EINVAL => "EINVAL",
        libc::ENFILE => "ENFILE",
        libc::EMFILE => "EMFILE",
        libc::EFBIG => "EFBIG",
        libc::ENOSPC => "ENOSPC",
        libc::EROFS => "EROFS",
        libc::ENAMETOOLONG => "ENAMETOOLONG",
        libc::ENOSYS => "ENOSYS",
        libc::ELOOP => "ELOOP",
        libc::EOVERFLOW => "EOVERFLOW",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        libc::ETIMEDOUT => "ETIMEDOUT",
        libc::ESTALE => "ESTALE",
        libc::EDQUOT => "EDQUOT",
        libc::ECANCELED => "ECANCELED",
        _ => return format!("E{number}"),
    };
    name.to_owned()
}
