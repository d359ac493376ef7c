use proptest::prelude::*;

use super::file;
use crate::checkpoint::dtype::dtype;
use crate::checkpoint::header::Header;
use crate::checkpoint::index::Index;
use crate::checkpoint::open::open_bytes;

/// A generated header's tensors: unique names with dtype row and shape, laid out in order, listed
/// in another order.
#[derive(Clone, Debug)]
struct Sample {
    tensors: Vec<(String, u8, Vec<u64>)>,
    listed: Vec<usize>,
    metadata: Vec<(String, String)>,
}

impl Sample {
    /// Begin and end of each tensor in the byte buffer.
    fn ranges(&self) -> Vec<(u64, u64)> {
        let mut end = 0;
        let range = |(_, row, shape): &(String, u8, Vec<u64>)| {
            let begin = end;
            end += shape.iter().product::<u64>() * dtype(*row).1 / 8;
            (begin, end)
        };
        self.tensors.iter().map(range).collect()
    }

    fn bytes(&self) -> Vec<u8> {
        let ranges = self.ranges();
        let mut entries: Vec<String> = self
            .listed
            .iter()
            .map(|i| {
                let (name, row, shape) = &self.tensors[*i];
                let name = serde_json::to_string(name).expect("JSON");
                format!(r#"{name}:{{"dtype":"{}","shape":{shape:?},"data_offsets":[{},{}]}}"#, dtype(*row).0, ranges[*i].0, ranges[*i].1)
            })
            .collect();
        if !self.metadata.is_empty() {
            let pairs: serde_json::Map<String, serde_json::Value> =
                self.metadata.iter().map(|(k, v)| (k.clone(), v.clone().into())).collect();
            entries.push(format!(r#""__metadata__":{}"#, serde_json::Value::Object(pairs)));
        }
        file(format!("{{{}}}", entries.join(",")).as_bytes(), ranges.last().map_or(0, |range| range.1 as usize))
    }
}

fn samples() -> impl Strategy<Value = Sample> {
    // A last dimension of 8 lets every dtype end at a byte; 0 makes an empty tensor.
    let shape = (prop::collection::vec(0u64..4, 0..3), prop_oneof![4 => Just(8u64), 1 => Just(0u64)]).prop_map(|(mut dims, last)| {
        dims.push(last);
        dims
    });
    let tensors = prop::collection::btree_map("\\PC{0,8}", (0u8..22, shape), 0..12);
    let metadata = prop::collection::btree_map("\\PC{0,6}", "\\PC{0,6}", 0..3);
    (tensors, metadata, any::<prop::sample::Index>()).prop_map(|(tensors, metadata, turn)| {
        let tensors: Vec<_> =
            tensors.into_iter().filter(|(name, _)| name != "__metadata__").map(|(name, (row, shape))| (name, row, shape)).collect();
        let mut listed: Vec<usize> = (0..tensors.len()).collect();
        if !listed.is_empty() {
            listed.rotate_left(turn.index(tensors.len()));
        }
        Sample { tensors, listed, metadata: metadata.into_iter().collect() }
    })
}

/// What every accepted header promises.
fn holds(header: &Header, size: u64) -> bool {
    let count = header.names.len();
    let mut sorted = header.order.clone();
    sorted.sort_unstable();
    let mut end = 0;
    let contiguous = header.order.iter().map(|row| *row as usize).all(|row| {
        let follows = header.begin[row] == end;
        end = header.end[row];
        let bits = header.shape(row).iter().product::<u64>() * dtype(header.dtype[row]).1;
        follows && bits.is_multiple_of(8) && bits / 8 == end - header.begin[row] && header.names.find(header.names.get(row)) == Some(row)
    });
    sorted == (0..count as u32).collect::<Vec<_>>() && contiguous && header.data_start + end == size
}

/// A change that a damaged or hostile file could have.
#[derive(Clone, Debug)]
enum Mutation {
    Set(prop::sample::Index, u8),
    Insert(prop::sample::Index, &'static str),
    Remove(prop::sample::Index, usize),
    Cut(prop::sample::Index),
}

fn mutations() -> impl Strategy<Value = Vec<Mutation>> {
    let at = any::<prop::sample::Index>;
    let words = prop::sample::select(vec![
        "0",
        "-1",
        "1.0",
        "18446744073709551615",
        "4294967296",
        "\"",
        "{",
        "}",
        "[",
        "]",
        ",",
        "null",
        "\\u0061",
        "\"a\":1,",
        "é",
    ]);
    let one = prop_oneof![
        (at(), any::<u8>()).prop_map(|(i, byte)| Mutation::Set(i, byte)),
        (at(), words).prop_map(|(i, word)| Mutation::Insert(i, word)),
        (at(), 1usize..5).prop_map(|(i, count)| Mutation::Remove(i, count)),
        at().prop_map(Mutation::Cut),
    ];
    prop::collection::vec(one, 1..4)
}

fn mutate(bytes: &mut Vec<u8>, mutation: &Mutation) {
    if bytes.is_empty() {
        return;
    }
    match mutation {
        Mutation::Set(i, byte) => {
            let at = i.index(bytes.len());
            bytes[at] = *byte;
        }
        Mutation::Insert(i, word) => {
            let at = i.index(bytes.len());
            bytes.splice(at..at, word.bytes());
        }
        Mutation::Remove(i, count) => {
            let at = i.index(bytes.len());
            let end = (at + count).min(bytes.len());
            bytes.drain(at..end);
        }
        Mutation::Cut(i) => bytes.truncate(i.index(bytes.len())),
    }
}

proptest! {
    #[test]
    fn generated_headers_come_back_as_they_were(sample in samples()) {
        let bytes = sample.bytes();
        let header = open_bytes(&bytes).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert!(holds(&header, bytes.len() as u64));
        let ranges = sample.ranges();
        for ((name, row, shape), range) in sample.tensors.iter().zip(ranges) {
            let at = header.names.find(name).expect("every name is found");
            prop_assert_eq!((header.dtype[at], header.shape(at), (header.begin[at], header.end[at])), (*row, shape.as_slice(), range));
        }
        let metadata: Vec<String> = sample.metadata.into_iter().flat_map(|(key, value)| [key, value]).collect();
        prop_assert_eq!(header.metadata, metadata);
    }

    #[test]
    fn mutated_files_are_refused_or_keep_every_rule(sample in samples(), changes in mutations()) {
        let mut bytes = sample.bytes();
        changes.iter().for_each(|change| mutate(&mut bytes, change));
        match open_bytes(&bytes) {
            Ok(header) => prop_assert!(holds(&header, bytes.len() as u64)),
            Err(error) => prop_assert!(error.code.starts_with("ERR_CHECKPOINT_") && !error.message.is_empty()),
        }
    }

    #[test]
    fn mutated_headers_behind_a_right_prefix(sample in samples(), changes in mutations()) {
        let whole = sample.bytes();
        let length = u64::from_le_bytes(whole[..8].try_into().expect("8 bytes")) as usize;
        let mut header = whole[8..8 + length].to_vec();
        changes.iter().for_each(|change| mutate(&mut header, change));
        let bytes = file(&header, whole.len() - 8 - length);
        if let Ok(header) = open_bytes(&bytes) {
            prop_assert!(holds(&header, bytes.len() as u64));
        }
    }

    #[test]
    fn mutated_indexes_are_refused_or_name_a_file_for_each_tensor(names in prop::collection::vec("\\PC{0,6}", 1..8), changes in mutations()) {
        let pairs: serde_json::Map<String, serde_json::Value> =
            names.iter().enumerate().map(|(i, name)| (name.clone(), format!("{}.safetensors", i % 3).into())).collect();
        let mut bytes = serde_json::json!({ "metadata": { "total_size": 1 }, "weight_map": pairs }).to_string().into_bytes();
        changes.iter().for_each(|change| mutate(&mut bytes, change));
        if let Ok(index) = Index::parse(&bytes) {
            prop_assert_eq!(index.names.len(), index.file_of.len());
            prop_assert!(index.file_of.iter().all(|file| (*file as usize) < index.files.len()));
            prop_assert!(index.files.iter().all(|file| !file.is_empty() && !file.contains('\0')));
        }
    }
}
