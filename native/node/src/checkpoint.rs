//! Binding of `mx_core::checkpoint`.

use std::path::Path;
use std::sync::Arc;

use mx_core::checkpoint::{self, Columns, Headers, Index, Names, Shard, Table};
use mx_core::error::Error;
use mx_core::memory::collected;
use napi::bindgen_prelude::{BigUint64Array, ClassInstance, Float64Array, PromiseRaw, Uint8Array, Uint32Array};
use napi::{Env, Result};
use napi_derive::napi;

use crate::background::{FILES, NativeStop, in_background_until};
use crate::failure::thrown;

/// A parsed and validated `*.safetensors.index.json`: the files it names, in order of first
/// mention, untrusted. Holds its weight map natively.
#[napi]
pub struct NativeIndex {
    index: Arc<Index>,
}

#[napi]
impl NativeIndex {
    #[napi(getter)]
    pub fn files(&self) -> Vec<&str> {
        self.index.files.iter().collect()
    }

    #[napi(getter)]
    pub fn tensor_count(&self) -> u32 {
        self.index.names.len() as u32
    }
}

/// Parses and validates an index file on a native thread.
#[napi]
pub fn read_index<'env>(env: &'env Env, path: String, stop: Option<&NativeStop>) -> Result<PromiseRaw<'env, NativeIndex>> {
    in_background_until(env, &FILES, stop, move || Ok(NativeIndex { index: Arc::new(checkpoint::read_index(&path)?) }))
}

/// Opens, reads, validates all headers in parallel on native threads. `index` and `shardOfFile`
/// (row of `paths` for each of the index's files) restrict the tensors to what the index assigns to
/// each shard. `asked`: paths for `NativeHeaders.existing`.
#[napi]
pub fn open_shards<'env>(
    env: &'env Env,
    paths: Vec<String>,
    index: Option<ClassInstance<'env, NativeIndex>>,
    shard_of_file: Uint32Array,
    threads: u32,
    mut asked: Vec<String>,
    stop: Option<&NativeStop>,
) -> Result<PromiseRaw<'env, NativeHeaders>> {
    let index = index.map(|given| given.index.clone());
    let shard_of_file = shard_of_file.to_vec();
    in_background_until(env, &FILES, stop, move || {
        let assignment = index.as_deref().map(|index| (index, &shard_of_file[..]));
        let Headers { shards, table } = checkpoint::open_shards(&paths, assignment, threads as usize)?;
        asked.retain(|path| Path::new(path).exists());
        let Table { names, columns } = table;
        // The copies are made here, so that the JavaScript thread has only to take them.
        let name_bytes = collected(names.text().bytes(), "the names of tensors")?;
        let name_end = collected(names.ends().iter().map(|end| *end as f64), "the names of tensors")?;
        Ok(NativeHeaders { shards, existing: asked, names, handover: Some(Handover { name_bytes, name_end, columns }) })
    })
}

/// One entry per shard, in the order of the paths given to `openShards`.
#[napi(object, object_from_js = false)]
pub struct ShardColumns {
    /// File size in bytes.
    pub size: Float64Array,
    /// File offset of the first data byte (8 + header length).
    pub data_start: Float64Array,
    /// What tells each file again (device, inode number, time of modification and, where those do
    /// not last, its header), opaque: 6 entries per file. A transfer compares it.
    pub identity: BigUint64Array,
    /// Alignment in bytes that direct I/O needs for file offsets (statx STATX_DIOALIGN); 0 where
    /// the kernel does not say.
    pub dio_offset_align: Uint32Array,
    /// The same for memory.
    pub dio_mem_align: Uint32Array,
    /// How far the kernel reads ahead of one thread that reads through the page cache, in bytes.
    pub read_ahead_bytes: Float64Array,
    /// 1 where the driver `auto` reads, or may read, through the page cache: short files, and where
    /// O_DIRECT is refused.
    pub cached_under_auto: Uint8Array,
}

/// One entry per tensor, sorted by (shard, file offset, position in the header).
#[napi(object, object_from_js = false)]
pub struct TensorColumns {
    pub count: u32,
    /// UTF-8 of all names, one after the other; `nameEnd[i]` is the end of name i in bytes.
    pub name_bytes: Uint8Array,
    pub name_end: Float64Array,
    /// True when every name is ASCII: then byte offsets are string offsets.
    pub names_ascii: bool,
    /// Index into the dtype table of `checkpoint/dtype.ts`.
    pub dtype: Uint8Array,
    pub shard: Uint32Array,
    /// Absolute file offset of the tensor's first byte.
    pub offset: Float64Array,
    pub length: Float64Array,
    /// `dims[dimEnd[i - 1] .. dimEnd[i]]` is the shape of tensor i.
    pub dim_end: Uint32Array,
    pub dims: Float64Array,
}

/// What moves to JavaScript at the one call of `tensor_columns`.
struct Handover {
    name_bytes: Vec<u8>,
    name_end: Vec<f64>,
    columns: Columns,
}

/// Headers of all shards, validated whole and, where an index was given, held against it.
#[napi]
pub struct NativeHeaders {
    shards: Vec<Shard>,
    existing: Vec<String>,
    /// Stays, for `find`.
    names: Names,
    handover: Option<Handover>,
}

#[napi]
impl NativeHeaders {
    #[napi]
    pub fn shard_columns(&self) -> ShardColumns {
        let shards = || self.shards.iter();
        ShardColumns {
            size: shards().map(|shard| shard.identity.size() as f64).collect::<Vec<_>>().into(),
            data_start: shards().map(|shard| shard.data_start as f64).collect::<Vec<_>>().into(),
            identity: shards().flat_map(|shard| shard.identity.words()).collect::<Vec<_>>().into(),
            dio_offset_align: shards().map(|shard| shard.align.offset).collect::<Vec<_>>().into(),
            dio_mem_align: shards().map(|shard| shard.align.memory).collect::<Vec<_>>().into(),
            read_ahead_bytes: shards().map(|shard| shard.cache_use.read_ahead_bytes as f64).collect::<Vec<_>>().into(),
            cached_under_auto: shards().map(|shard| u8::from(shard.cache_use.under_auto)).collect::<Vec<_>>().into(),
        }
    }

    /// Hands the columns over; a second call throws.
    #[napi]
    pub fn tensor_columns(&mut self) -> Result<TensorColumns> {
        let Some(Handover { name_bytes, name_end, columns }) = self.handover.take() else {
            return Err(thrown(Error::new("ERR_INTERNAL", "the columns of these headers were handed out before")));
        };
        let Columns { dtype, shard, offset, length, dim_end, dims } = columns;
        Ok(TensorColumns {
            count: self.names.len() as u32,
            name_bytes: name_bytes.into(),
            name_end: name_end.into(),
            names_ascii: self.names.text().is_ascii(),
            dtype: dtype.into(),
            shard: shard.into(),
            offset: offset.into(),
            length: length.into(),
            dim_end: dim_end.into(),
            dims: dims.into(),
        })
    }

    /// Row of the tensor of that name, or null.
    #[napi]
    pub fn find(&self, name: String) -> Option<f64> {
        self.names.find(&name).map(|row| row as f64)
    }

    /// Those of the paths asked about that something was at, once the headers were read.
    #[napi]
    pub fn existing(&self) -> Vec<&str> {
        self.existing.iter().map(String::as_str).collect()
    }

    /// `[key, value, key, value, ...]` of one shard's `__metadata__`.
    #[napi]
    pub fn metadata(&self, shard: u32) -> Vec<&str> {
        let shard = self.shards.get(shard as usize);
        shard.map_or_else(Vec::new, |shard| shard.metadata.iter().map(String::as_str).collect())
    }
}
