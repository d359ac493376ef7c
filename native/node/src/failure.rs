//! Errors on their way to JavaScript: the message of the thrown error is the JSON of
//! `NativeFailure` in `src/native/failure.ts`.

use mx_core::error::{Error, Fact};

/// The JSON text that `src/native/failure.ts` reads.
pub fn failure_json(error: &Error) -> String {
    let facts: serde_json::Map<String, serde_json::Value> = error
        .facts
        .iter()
        .map(|(name, fact)| {
            let value = match fact {
                Fact::Text(text) => serde_json::Value::from(text.as_str()),
                Fact::Number(number) => serde_json::Value::from(*number),
            };
            ((*name).to_owned(), value)
        })
        .collect();
    serde_json::json!({ "code": error.code, "message": error.message, "facts": facts }).to_string()
}

/// A JavaScript exception that carries `error`.
pub fn thrown(error: Error) -> napi::Error {
    napi::Error::from_reason(failure_json(&error))
}
