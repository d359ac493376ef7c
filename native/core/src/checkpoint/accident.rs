//! What a file is that should have been safetensors: the usual accidents, recognised by their first
//! bytes.

use crate::error::Error;

/// Beginnings that tell all. Text is compared without regard to case.
const BEGINNINGS: [(&[u8], &str); 22] = [
    (b"version https://git-lfs", "a Git-LFS pointer, not the file itself (run `git lfs pull`)"),
    (b"/annex/objects/", "a git-annex pointer, not the file itself (run `git annex get`)"),
    (b"# xet version", "a Xet pointer, not the file itself"),
    (b"<!doctype html", "an HTML page, such as a server sends instead of a file"),
    (b"<html", "an HTML page, such as a server sends instead of a file"),
    (b"<?xml", "an XML document, such as object storage sends instead of a file"),
    (b"<error", "an XML document, such as object storage sends instead of a file"),
    (b"PK\x03\x04", "a zip archive, as PyTorch's .pt and .bin or NumPy's .npz are"),
    (b"\x80\x02", "a Python pickle, as old PyTorch files are"),
    (b"\x80\x03", "a Python pickle, as old PyTorch files are"),
    (b"\x80\x04", "a Python pickle"),
    (b"\x80\x05", "a Python pickle"),
    (b"GGUF", "a GGUF file"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file, as Keras writes"),
    (b"\x93NUMPY", "a NumPy array file"),
    (b"\x1f\x8b", "gzip-compressed"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed"),
    (b"\xfd7zXZ\0", "xz-compressed"),
    (b"BZh", "bzip2-compressed"),
    (b"\x7fELF", "an executable or shared library"),
    (b"Entry not found", "the answer of the Hugging Face Hub for a file that does not exist"),
    (b"Invalid username or password", "the answer of the Hugging Face Hub to a request without access"),
];

/// What the beginning of a file looks like, if it is a known accident.
pub fn looks_like(head: &[u8]) -> Option<&'static str> {
    let is_space = |byte: &u8| byte.is_ascii_whitespace();
    let blanks = head.iter().take_while(|byte| is_space(byte)).count();
    let known = BEGINNINGS.iter().find(|(beginning, _)| {
        // Only text may follow white space.
        let text = beginning[0] == b'<';
        let head = if text { &head[blanks..] } else { head };
        head.len() >= beginning.len() && head[..beginning.len()].eq_ignore_ascii_case(beginning)
    });
    if let Some((_, what)) = known {
        return Some(what);
    }
    if head.len() >= 262 && &head[257..262] == b"ustar" {
        return Some("a tar archive");
    }
    if !head.is_empty() && head.iter().all(|byte| *byte == 0) {
        return Some("nothing but zeros, as a downloader leaves that reserved the space and did not fill it");
    }
    if head[blanks..].starts_with(b"{") {
        return Some("JSON text without the length in front (an index, a config, or an error answer of a server)");
    }
    is_link_text(head).then_some("the text of a symbolic link that was copied as a plain file (copy with links kept, or followed)")
}

/// One short line that is a relative path, which is what a Hub cache's links become on file systems
/// without links.
fn is_link_text(head: &[u8]) -> bool {
    let printable = head.iter().all(|byte| (0x20..0x7f).contains(byte));
    (head.starts_with(b"../") || head.starts_with(b"./")) && head.len() < 4096 && printable
}

/// Ends an error's message with what the file looks like.
pub fn recognise(mut error: Error, head: &[u8]) -> Error {
    let Some(what) = looks_like(head) else {
        return error;
    };
    error.message += &format!("; the file looks like {what}");
    error.with("looksLike", what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_the_usual_accidents() {
        let mut tar = vec![b'a'; 512];
        tar[257..262].copy_from_slice(b"ustar");
        let cases: [(&[u8], &str); 14] = [
            (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n", "Git-LFS"),
            (b"/annex/objects/SHA256E-s5--ab.safetensors\n", "git-annex"),
            (b"\n\n  <!DOCTYPE html><html>", "HTML"),
            (b"<HTML>", "HTML"),
            (b"<?xml version=\"1.0\"?><Error>", "XML"),
            (b"PK\x03\x04\x14\x00", "zip"),
            (b"\x80\x02\x8a\x0a", "pickle"),
            (b"GGUF\x03\0\0\0", "GGUF"),
            (b"\x89HDF\r\n\x1a\n", "HDF5"),
            (b"\x1f\x8b\x08", "gzip"),
            (b"  {\"weight_map\": {}}", "JSON text"),
            (b"../../blobs/06c406e9", "symbolic link"),
            (&[0; 64], "zeros"),
            (&tar, "tar"),
        ];
        for (head, word) in cases {
            let what = looks_like(head).unwrap_or_default();
            assert!(what.contains(word), "{word}: {what}");
        }
        assert_eq!(looks_like(b""), None);
        assert_eq!(looks_like(b"\x02\0\0\0\0\0\0\0{}"), None);
        assert_eq!(looks_like(b"plain"), None);
    }
}
