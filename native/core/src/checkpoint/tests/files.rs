use std::ffi::CString;
use std::os::unix::fs::symlink;

use super::{Folder, fact, file};
use crate::checkpoint::{Headers, open_shards, read_index};
use crate::error::{Error, Fact, Result};

fn one_tensor(name: &str, bytes: usize) -> Vec<u8> {
    file(format!(r#"{{"{name}":{{"dtype":"U8","shape":[{bytes}],"data_offsets":[0,{bytes}]}}}}"#).as_bytes(), bytes)
}

fn open(paths: &[String]) -> Result<Headers> {
    open_shards(paths, None, 4)
}

fn refused(result: Result<Headers>, code: &str) -> Error {
    let error = result.err().unwrap_or_else(|| panic!("accepted, expected {code}"));
    assert_eq!(error.code, code, "{error}");
    error
}

#[test]
fn joins_shards_in_order() {
    let folder = Folder::new();
    let header = r#"{"é":{"dtype":"F16","shape":[2,1],"data_offsets":[1,5]},"b":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}"#;
    let paths =
        [folder.write("1", &one_tensor("a", 3)), folder.write("2", &file(header.as_bytes(), 5)), folder.write("3", &file(b"{}", 0))];
    let Headers { shards, table } = open(&paths).expect("headers");
    assert_eq!(table.names.iter().collect::<Vec<_>>(), ["a", "b", "é"]);
    let columns = &table.columns;
    let start = 8.0 + header.len() as f64;
    assert_eq!(columns.shard, [0, 1, 1]);
    assert_eq!(columns.dtype, [4, 4, 13]);
    assert_eq!(columns.offset[1..], [start, start + 1.0]);
    assert_eq!(columns.length, [3.0, 1.0, 4.0]);
    assert_eq!((&columns.dim_end[..], &columns.dims[..]), (&[1, 1, 3][..], &[3.0, 2.0, 1.0][..]));
    assert_eq!(shards[1].identity.size(), start as u64 + 5);
    assert_eq!(shards[2].data_start, 10);
}

#[test]
fn reads_headers_longer_than_the_first_read() {
    let folder = Folder::new();
    for padding in [(128 << 10) - 2, (128 << 10) - 10, (128 << 10) - 9, (128 << 10) + 7, 1 << 20] {
        let header = "{}".to_owned() + &" ".repeat(padding);
        let path = folder.write("padded", &file(header.as_bytes(), 0));
        let headers = open(&[path]).expect("a padded header");
        assert_eq!(headers.shards[0].data_start, 8 + 2 + padding as u64);
    }
}

#[test]
fn the_header_limit_is_exact() {
    let folder = Folder::new();
    for (length, code) in [(100_000_000u64, ""), (100_000_001, "ERR_CHECKPOINT_HEADER_TOO_LARGE")] {
        let path = folder.write("large", &length.to_le_bytes());
        let mut text = vec![b' '; length as usize];
        text[..2].copy_from_slice(b"{}");
        std::fs::write(&path, [&length.to_le_bytes()[..], &text].concat()).expect("a written file");
        match open(&[path]) {
            Ok(headers) => assert_eq!((code, headers.shards[0].data_start), ("", 8 + length)),
            Err(error) => assert_eq!(error.code, code),
        }
    }
}

#[test]
fn an_index_decides_which_shard_counts() {
    let folder = Folder::new();
    let both = r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]},"c":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}}"#;
    let paths = [folder.write("1", &file(both.as_bytes(), 4)), folder.write("2", &one_tensor("b", 7))];
    assert_eq!(fact(&refused(open(&paths), "ERR_CHECKPOINT_DUPLICATE_TENSOR"), "tensor"), Some(&Fact::from("b")));
    let index = read_index(&folder.write("index", br#"{"weight_map":{"b":"2","a":"1"}}"#)).expect("an index");
    let table = open_shards(&paths, Some((&index, &[1, 0])), 2).expect("headers").table;
    assert_eq!(table.names.iter().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(table.columns.length, [1.0, 7.0]);

    let index = read_index(&folder.write("index", br#"{"weight_map":{"b":"2","a":"2","zz":"1"}}"#)).expect("an index");
    let error = refused(open_shards(&paths, Some((&index, &[1, 0])), 2), "ERR_CHECKPOINT_INDEX_TENSOR_MISSING");
    assert_eq!(fact(&error, "tensor"), Some(&Fact::from("a")));
    assert_eq!(fact(&error, "file"), Some(&Fact::from(paths[1].as_str())));
    assert_eq!(fact(&error, "missing"), Some(&Fact::Number(2.0)));
    refused(open_shards(&paths, Some((&index, &[1])), 2), "ERR_INTERNAL");
    refused(open_shards(&paths, Some((&index, &[1, 2])), 2), "ERR_INTERNAL");
}

#[test]
fn reports_the_first_bad_shard_whatever_the_threads_do() {
    let folder = Folder::new();
    let good = one_tensor("a", 1);
    let paths: Vec<String> = (0..64)
        .map(|i| match i {
            17 => folder.write("17", b""),
            40 | 63 => folder.write(&i.to_string(), b"x"),
            _ => folder.write(&i.to_string(), &good),
        })
        .collect();
    for threads in [1, 2, 7, 64] {
        let error = refused(open_shards(&paths, None, threads), "ERR_CHECKPOINT_FILE_TOO_SMALL");
        assert_eq!(fact(&error, "file"), Some(&Fact::from(paths[17].as_str())));
    }
}

#[test]
fn counts_missing_shards() {
    let folder = Folder::new();
    let paths = [folder.write("1", &one_tensor("a", 1)), folder.path("2"), folder.path("3")];
    let error = refused(open(&paths), "ERR_CHECKPOINT_SHARD_MISSING");
    assert!(error.message.contains("2 of the checkpoint's 3 shards"), "{error}");
    assert_eq!(fact(&error, "errno"), Some(&Fact::from("ENOENT")));
    refused(open(&paths[1..2]), "ERR_CHECKPOINT_NOT_FOUND");
    symlink("nowhere", folder.path("4")).expect("a link");
    assert!(refused(open(&[folder.path("4")]), "ERR_CHECKPOINT_NOT_FOUND").message.contains("leads to nowhere"));
}

#[test]
fn refuses_what_is_no_regular_file_without_waiting() {
    let folder = Folder::new();
    let pipe = CString::new(folder.path("pipe")).expect("no NUL");
    // SAFETY: a NUL-terminated path.
    assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
    assert!(refused(open(&[folder.path("pipe")]), "ERR_CHECKPOINT_NOT_REGULAR").message.contains("named pipe"));
    assert!(refused(open(&[folder.path("")]), "ERR_CHECKPOINT_NOT_REGULAR").message.contains("folder"));
    refused(open(&["/dev/null".to_owned()]), "ERR_CHECKPOINT_NOT_REGULAR");
    symlink("loop", folder.path("loop")).expect("a link");
    assert_eq!(fact(&refused(open(&[folder.path("loop")]), "ERR_CHECKPOINT_IO"), "errno"), Some(&Fact::from("ELOOP")));
    assert_eq!(read_index(&folder.path("")).expect_err("a folder").code, "ERR_CHECKPOINT_NOT_REGULAR");
    assert_eq!(read_index(&folder.path("none")).expect_err("no file").code, "ERR_CHECKPOINT_NOT_FOUND");
}

#[test]
fn bounds_the_index() {
    let folder = Folder::new();
    let path = folder.write("index", b"");
    std::fs::File::options().write(true).open(&path).and_then(|file| file.set_len((1 << 28) + 1)).expect("a sparse file");
    let error = read_index(&path).expect_err("too long");
    assert!(error.code == "ERR_CHECKPOINT_INDEX_INVALID" && error.message.contains("268435457"), "{error}");
}
