use super::{fact, file};
use crate::checkpoint::header::Header;
use crate::checkpoint::open::open_bytes;
use crate::error::{Error, Fact};

fn accept(header: &str, data: usize) -> Header {
    open_bytes(&file(header.as_bytes(), data)).unwrap_or_else(|error| panic!("{header}: {error}"))
}

fn refuse(header: impl AsRef<[u8]>, data: usize, code: &str) -> Error {
    let header = header.as_ref();
    let shown = String::from_utf8_lossy(header).into_owned();
    let error = open_bytes(&file(header, data)).err().unwrap_or_else(|| panic!("accepted: {shown}"));
    assert_eq!(error.code, code, "{shown}: {error}");
    error
}

const A: &str = r#""a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}"#;

#[test]
fn accepts_columns_in_file_order() {
    let header = accept(
        r#"{"z":{"dtype":"F16","shape":[2,3],"data_offsets":[4,16]},"é":{"data_offsets":[0,4],"shape":[],"dtype":"I32"},"__metadata__":{"format":"pt"}}"#,
        16,
    );
    assert_eq!(header.names.iter().collect::<Vec<_>>(), ["z", "é"]);
    assert_eq!(header.order, [1, 0]);
    assert_eq!(header.dtype, [13, 15]);
    assert_eq!((header.shape(0), header.shape(1)), (&[2, 3][..], &[][..]));
    assert_eq!((header.begin[0], header.end[0]), (4, 16));
    assert_eq!(header.metadata, ["format", "pt"]);
}

#[test]
fn accepts_what_the_format_allows() {
    accept("{}", 0);
    accept("{}      ", 0);
    accept(" \t\r\n{}\n\r\t ", 0);
    accept(r#"{"__metadata__":{}}"#, 0);
    accept(r#"{"__metadata__":null}"#, 0);
    accept(&format!("{{{A},\"__metadata__\":{{\"k\":\"v\"}}}}"), 4);
    accept(r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"extra":{"x":[1.5,null,true,"s",-1]}}}"#, 4);
    accept(r#"{"a":{"dtype":"F4","shape":[2,3],"data_offsets":[0,3]}}"#, 3);
    accept(r#"{"a":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}}"#, 3);
    accept(r#"{"a":{"dtype":"U8","shape":[0,4294967296,4294967296],"data_offsets":[0,0]}}"#, 0);
    accept(r#"{"a":{"\u0064type":"\u004632","shape":[1],"data_offsets":[0,4]}}"#, 4);
    for name in ["", "\\u0000", "/", "__proto__", "\\ud83d\\ude00"] {
        accept(&format!(r#"{{"{name}":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}}}"#), 1);
    }
    let mixed = accept(
        r#"{"e3":{"dtype":"F32","shape":[0],"data_offsets":[4,4]},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"e1":{"dtype":"F32","shape":[2,0],"data_offsets":[0,0]}}"#,
        4,
    );
    assert_eq!(mixed.order, [2, 1, 0]);
}

#[test]
fn accepts_every_dtype_with_its_bits() {
    let bits = [8, 4, 6, 6, 8, 8, 8, 8, 8, 8, 8, 16, 16, 16, 16, 32, 32, 32, 64, 64, 64, 64];
    let names =
        "BOOL F4 F6_E2M3 F6_E3M2 U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ I16 U16 F16 BF16 I32 U32 F32 C64 F64 I64 U64";
    for (row, (name, bits)) in names.split(' ').zip(bits).enumerate() {
        let header = accept(&format!(r#"{{"t":{{"dtype":"{name}","shape":[8],"data_offsets":[0,{bits}]}}}}"#), bits);
        assert_eq!(usize::from(header.dtype[0]), row, "{name}");
    }
}

#[test]
fn refuses_files_without_a_whole_prefix() {
    for (bytes, text) in [(&b""[..], "empty"), (b"\x02\0\0\0\0\0\0", "7 bytes")] {
        let error = open_bytes(bytes).expect_err("too small");
        assert_eq!(error.code, "ERR_CHECKPOINT_FILE_TOO_SMALL");
        assert!(error.message.contains(text), "{error}");
    }
}

#[test]
fn refuses_headers_above_the_limit_before_reading_them() {
    for length in [100_000_001u64, 4_294_967_298, 1 << 63, u64::MAX] {
        let error = open_bytes(&length.to_le_bytes()).expect_err("too large");
        assert_eq!(error.code, "ERR_CHECKPOINT_HEADER_TOO_LARGE");
        assert!(fact(&error, "headerBytes").is_some());
    }
    let error = open_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n").expect_err("a pointer");
    assert_eq!(error.code, "ERR_CHECKPOINT_HEADER_TOO_LARGE");
    assert!(error.message.contains("Git-LFS pointer"), "{error}");
}

#[test]
fn refuses_headers_beyond_the_file() {
    let error = open_bytes(b"\x03\0\0\0\0\0\0\0{}").expect_err("truncated");
    assert_eq!(error.code, "ERR_CHECKPOINT_HEADER_TRUNCATED");
    assert_eq!(fact(&error, "expectedBytes"), Some(&Fact::Number(11.0)));
    let limit = 100_000_000u64.to_le_bytes();
    assert_eq!(open_bytes(&limit).expect_err("truncated").code, "ERR_CHECKPOINT_HEADER_TRUNCATED");
}

#[test]
fn refuses_text_that_is_not_utf8() {
    for bytes in [&b"{\"\xff\":{}}"[..], b"{\"\xc0\xaf\":{}}", b"{\"\xed\xa0\x80\":{}}"] {
        let error = refuse(bytes, 0, "ERR_CHECKPOINT_HEADER_NOT_UTF8");
        assert_eq!(fact(&error, "offset"), Some(&Fact::Number(10.0)));
    }
}

#[test]
fn refuses_text_that_is_not_one_json_document() {
    let code = "ERR_CHECKPOINT_HEADER_NOT_JSON";
    for header in ["", "{", "{}{}", "{},", "{}x", "{},{}", r#"{"__metadata__":{},}"#, "{}//", "{}\0\0", "\u{feff}{}", "\0{}"] {
        refuse(header, 0, code);
    }
    refuse(r#"{"\ud800":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#, 1, code);
    refuse("{\"a\nb\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, code);
    refuse(r#"{"a":{"dtype":"U8","shape":[01],"data_offsets":[0,1]}}"#, 1, code);
    refuse(r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":"\ud800"}}"#, 1, code);
    let deep = "[".repeat(200) + &"]".repeat(200);
    refuse(format!(r#"{{"a":{{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":{deep}}}}}"#), 1, code);
    let error = refuse("{\n}\0", 0, code);
    assert_eq!(fact(&error, "offset"), Some(&Fact::Number(11.0)));
    assert!(error.message.contains("byte 0x00"), "{error}");
}

#[test]
fn refuses_wrong_types() {
    let code = "ERR_CHECKPOINT_HEADER_TYPE";
    for header in ["null", "[]", "1", "\"s\"", "true"] {
        refuse(header, 0, code);
    }
    let entry = |entry: &str| format!(r#"{{"a":{entry}}}"#);
    for broken in [
        r#"["F32",[1],[0,4]]"#,
        "null",
        r#"{"dtype":{"F32":null},"shape":[1],"data_offsets":[0,4]}"#,
        r#"{"dtype":17,"shape":[1],"data_offsets":[0,4]}"#,
        r#"{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}"#,
        r#"{"dtype":"F32","shape":[1e0],"data_offsets":[0,4]}"#,
        r#"{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}"#,
        r#"{"dtype":"F32","shape":[-0],"data_offsets":[0,4]}"#,
        r#"{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}"#,
        r#"{"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,4]}"#,
        r#"{"dtype":"F32","shape":1,"data_offsets":[0,4]}"#,
        r#"{"dtype":"F32","shape":{"0":1},"data_offsets":[0,4]}"#,
        r#"{"dtype":"F32","shape":[1],"data_offsets":[0,4.0]}"#,
        r#"{"dtype":"F32","shape":[1],"data_offsets":[0]}"#,
        r#"{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}"#,
        r#"{"dtype":"F32","shape":[1],"data_offsets":{"begin":0,"end":4}}"#,
        r#"{"dtype":"F32","shape":[1],"offsets":[0,4]}"#,
        r#"{"dtype":"F32","data_offsets":[0,4]}"#,
        r#"{"shape":[1],"data_offsets":[0,4]}"#,
    ] {
        let error = refuse(entry(broken), 4, code);
        assert_eq!(fact(&error, "tensor"), Some(&Fact::from("a")), "{error}");
    }
    let error = refuse(entry(r#"{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}"#), 4, code);
    assert_eq!(
        error.message,
        "tensor \"a\": shape: invalid type: floating point `1.0`, expected an unsigned 64-bit integer near file offset 39"
    );
    assert_eq!(fact(&error, "field"), Some(&Fact::from("shape")));
}

#[test]
fn refuses_keys_that_occur_twice() {
    let code = "ERR_CHECKPOINT_DUPLICATE_KEY";
    refuse(format!("{{{A},{A}}}"), 4, code);
    refuse(format!("{{{A},\"\\u0061\":{{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[0,4]}}}}"), 4, code);
    refuse(r#"{"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#, 4, code);
    refuse(r#"{"a":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}}"#, 4, code);
    refuse(r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"data_offsets":[0,4]}}"#, 4, code);
    refuse(r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1,"x":1}}"#, 4, code);
    refuse(r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":[{"y":1,"\u0079":2}]}}"#, 4, code);
    refuse(r#"{"__metadata__":{},"__metadata__":{}}"#, 0, code);
    refuse(r#"{"__metadata__":{"k":"1","k":"2"}}"#, 0, code);
    let error = refuse(r#"{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,36],"dtype":"F32"}}"#, 4, code);
    assert_eq!(error.message, r#"tensor "a": the key "dtype" occurs twice in one JSON object"#);
}

#[test]
fn refuses_unknown_dtypes() {
    for dtype in ["F7", "f32", "", "constructor", "F32 "] {
        let header = format!(r#"{{"a":{{"dtype":"{dtype}","shape":[1],"data_offsets":[18446744073709551000,0]}}}}"#);
        let error = refuse(header, 4, "ERR_CHECKPOINT_UNKNOWN_DTYPE");
        assert_eq!(fact(&error, "dtype"), Some(&Fact::from(dtype)));
    }
}

#[test]
fn refuses_metadata_that_maps_no_strings() {
    for metadata in
        ["[]", "1", "\"s\"", r#"{"k":null}"#, r#"{"k":1}"#, r#"{"k":{"n":"v"}}"#, r#"{"dtype":"F32","shape":[1],"data_offsets":[0,4]}"#]
    {
        refuse(format!(r#"{{"__metadata__":{metadata}}}"#), 0, "ERR_CHECKPOINT_METADATA");
    }
}

#[test]
fn refuses_overflow() {
    let code = "ERR_CHECKPOINT_OVERFLOW";
    refuse(r#"{"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}}"#, 0, code);
    refuse(r#"{"a":{"dtype":"U8","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}}"#, 0, code);
    refuse(r#"{"a":{"dtype":"F32","shape":[1152921504606846976],"data_offsets":[0,4]}}"#, 4, code);
    refuse(r#"{"b":{"dtype":"U8","shape":[18446744073709551611],"data_offsets":[4,18446744073709551615]}}"#, 4, code);
}

#[test]
fn refuses_elements_that_do_not_end_at_a_byte() {
    for (dtype, shape) in [("F4", "[3]"), ("F4", "[]"), ("F6_E3M2", "[2]"), ("F6_E2M3", "[1,1]")] {
        let header = format!(r#"{{"a":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[0,1]}}}}"#);
        refuse(header, 1, "ERR_CHECKPOINT_SUBBYTE_MISALIGNED");
    }
}

#[test]
fn refuses_shapes_that_do_not_fit_their_range() {
    let code = "ERR_CHECKPOINT_SIZE_MISMATCH";
    let error = refuse(r#"{"a":{"dtype":"F32","shape":[1000,1000],"data_offsets":[0,4]}}"#, 4, code);
    assert_eq!(error.message, r#"tensor "a": shape [1000, 1000] of F32 needs 4000000 bytes, data_offsets [0, 4] hold 4"#);
    refuse(r#"{"a":{"dtype":"F32","shape":[],"data_offsets":[0,0]}}"#, 0, code);
    refuse(r#"{"a":{"dtype":"U8","shape":[9007199254740993],"data_offsets":[0,9007199254740992]}}"#, 0, code);
}

#[test]
fn refuses_ranges_that_do_not_follow_each_other() {
    let code = "ERR_CHECKPOINT_OFFSETS";
    let b = |begin: u64, end: u64| format!(r#"{{{A},"b":{{"dtype":"U8","shape":[4],"data_offsets":[{begin},{end}]}}}}"#);
    let error = refuse(b(8, 12), 12, code);
    assert_eq!(error.message, r#"tensor "b": data_offsets [8, 12] leave a hole after tensor "a", which ends at 4"#);
    refuse(b(0, 4), 4, code);
    refuse(b(2, 6), 6, code);
    refuse(r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}}"#, 4, code);
    refuse(r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[62,66]}}"#, 4, code);
    refuse(format!(r#"{{{A},"z":{{"dtype":"F32","shape":[0],"data_offsets":[8,8]}}}}"#), 4, code);
    refuse(format!(r#"{{{A},"z":{{"dtype":"F32","shape":[0],"data_offsets":[2,2]}}}}"#), 4, code);
}

#[test]
fn refuses_files_of_another_size_than_their_header_describes() {
    let header = format!("{{{A}}}");
    let error = refuse(&header, 3, "ERR_CHECKPOINT_FILE_TRUNCATED");
    assert!(error.message.contains("1 missing"), "{error}");
    refuse(&header, 5, "ERR_CHECKPOINT_TRAILING_BYTES");
    refuse("{}", 4, "ERR_CHECKPOINT_TRAILING_BYTES");
}

#[test]
fn refuses_dimensions_that_javascript_cannot_hold() {
    let shape = |dim: u64| format!(r#"{{"a":{{"dtype":"U8","shape":[0,{dim}],"data_offsets":[0,0]}}}}"#);
    accept(&shape((1 << 53) - 1), 0);
    refuse(shape(1 << 53), 0, "ERR_CHECKPOINT_UNREPRESENTABLE");
}

#[test]
fn messages_escape_and_cut_names() {
    let name = "\\u001b[31m".to_owned() + &"x".repeat(1000);
    let error = refuse(format!(r#"{{"{name}":{{"dtype":"U8","shape":[1],"data_offsets":[0,2]}}}}"#), 2, "ERR_CHECKPOINT_SIZE_MISMATCH");
    assert!(error.message.len() < 400 && error.message.contains("\\u{1b}[31mx"), "{error}");
}
