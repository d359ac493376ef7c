//! One test per malformation, each on literal bytes; then generated and mutated headers; then real
//! files.

mod files;
mod headers;
mod indexes;
mod properties;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::Fact;

/// A file: length prefix, header, `data` zero bytes.
fn file(header: &[u8], data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header);
    bytes.resize(bytes.len() + data, 0);
    bytes
}

fn fact<'e>(error: &'e crate::error::Error, name: &str) -> Option<&'e Fact> {
    error.facts.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
}

/// A folder that goes away with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("mx-checkpoint-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Folder(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a UTF-8 path").to_owned()
    }

    fn write(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("a written file");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
