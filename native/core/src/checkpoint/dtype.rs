//! The closed set of dtypes. The row of a dtype is the same as in `src/checkpoint/dtype.ts`.

/// Name and bits per element, in the order that the reference writer sorts by.
const DTYPES: [(&str, u64); 22] = [
    ("BOOL", 8),
    ("F4", 4),
    ("F6_E2M3", 6),
    ("F6_E3M2", 6),
    ("U8", 8),
    ("I8", 8),
    ("F8_E5M2", 8),
    ("F8_E4M3", 8),
    ("F8_E8M0", 8),
    ("F8_E4M3FNUZ", 8),
    ("F8_E5M2FNUZ", 8),
    ("I16", 16),
    ("U16", 16),
    ("F16", 16),
    ("BF16", 16),
    ("I32", 32),
    ("U32", 32),
    ("F32", 32),
    ("C64", 64),
    ("F64", 64),
    ("I64", 64),
    ("U64", 64),
];

/// Row of the dtype of that exact name.
pub fn dtype_row(name: &str) -> Option<u8> {
    DTYPES.iter().position(|(known, _)| *known == name).map(|row| row as u8)
}

/// Name and bits per element of a row that [`dtype_row`] gave.
pub fn dtype(row: u8) -> (&'static str, u64) {
    DTYPES[usize::from(row)]
}

/// All names, for messages.
pub fn dtype_names() -> String {
    DTYPES.map(|(name, _)| name).join(", ")
}
