//! GGUF files: values to the bit of ggml's own package, and files that were made to break a reader.

use std::path::{Path, PathBuf};

use burn::tensor::{Device, Tensor};
use kernels::{Activation, BlockType, linear};
use nn::{
    Bias, GgufHeader, LowRank, Merge, Parameter, Part, Patch, Precision, Provider, Quantization,
    QuantizedMatrix, Store,
};
use testkit::numbers::{bits, tensor, values};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens/gguf").join(name)
}

fn open(path: &Path) -> nn::Result<Store> {
    Store::open(&[path.to_owned()], Precision::Stored, &Device::flex())
}

/// Every format stands for what ggml's package says, to the bit.
#[test]
fn blocks_are_what_the_package_says() {
    let store = open(&golden("blocks.gguf")).unwrap();
    for kind in BlockType::ALL {
        let name = kind.name();
        let Some(QuantizedMatrix::Blocks(own)) = store.quantized(&format!("{name}.weight")) else {
            panic!("{name} stays in blocks")
        };
        assert_eq!((own.kind(), own.shape()), (kind, [2, 256]));
        let expected: Tensor<2> = store.get(&format!("{name}.values")).unwrap().tensor();
        assert_eq!(bits(&own.widened(&Device::flex())), bits(&expected), "{name}");
        assert!(values(&expected).iter().any(|x| x.abs() > 1e-3), "{name}");
    }
}

/// What is rounded here is what ggml rounds to, byte for byte: the package's q8_0, and q4_k of its C code.
#[test]
fn rounding_is_that_of_the_reference() {
    let store = open(&golden("blocks.gguf")).unwrap();
    let source: Tensor<2> = store.get("nearest.values").unwrap().tensor();
    let off = |name: &str| {
        let own = store.quantized(&format!("nearest_{name}.weight")).unwrap();
        let own = values(&own.widened(&Device::flex()));
        own.iter().zip(values(&source)).map(|(own, x)| f64::from(own - x).powi(2)).sum::<f64>()
    };
    for kind in [BlockType::Q8_0, BlockType::Q4K] {
        let rounded = kind.nearest(&values(&source)).unwrap();
        let name = format!("nearest_{}.weight", kind.name());
        let Some(QuantizedMatrix::Blocks(own)) = store.quantized(&name) else { panic!("{name}") };
        assert!(own.whole().unwrap() == rounded, "{name} has other bytes");
    }
    assert!(off("q8_0") < 0.01 * off("q4_k") && off("q4_k") < off("q4_0"));
}

/// Low-rank changes stay beside blocks in the store, and are part of what the store stands for.
#[test]
fn a_low_rank_change_stays_beside_blocks() {
    let mut store = open(&golden("blocks.gguf")).unwrap();
    let name = "q4_k.weight";
    let wide: Tensor<2> = store.as_floats(name).unwrap().tensor();
    let change = LowRank { down: tensor("down", [3, 256]), up: tensor("up", [2, 3]), scale: 0.5 };
    let patch =
        || Patch { parameter: name.to_owned(), change: nn::Change::LowRank(change.clone()) };
    assert!(store.adapt(vec![patch()], Merge::Into).unwrap().is_empty());
    assert!(store.quantized(name).is_some(), "the blocks are where they were");
    let x: Tensor<2> = tensor("x", [5, 256]);
    let layer = |store: &Store, part: &Part| {
        let layer = store.linear(store, "q4_k", [256, 2], Bias::Without, part).unwrap();
        values(&layer.apply(x.clone()).unwrap())
    };
    let merged: Tensor<2> = wide + change.delta();
    assert_eq!(bits(&store.as_floats(name).unwrap().values), bits(&merged));
    let expected = values(&linear(x.clone(), merged, None, Activation::Identity));
    let near = |own: &[f32], expected: &[f32]| {
        own.len() == expected.len()
            && own.iter().zip(expected).all(|(own, x)| (own - x).abs() < 1e-4 * (1.0 + x.abs()))
    };
    assert!(near(&layer(&store, &Part::WHOLE), &expected));
    let half = Part { outputs: Some(1..2), inputs: None };
    let second: Vec<f32> = expected.iter().copied().skip(1).step_by(2).collect();
    assert!(near(&layer(&store, &half), &second), "a part of the layer has its part of the change");
    // What bytes are made of later stands beside them too.
    store.quantize([name], Quantization::Int8);
    assert!(matches!(store.quantized(name), Some(QuantizedMatrix::Int8(_))));
    let bytes = layer(&store, &Part::WHOLE);
    let largest = expected.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    assert!(bytes.iter().zip(&expected).all(|(own, x)| (own - x).abs() < 0.05 * largest));
}

/// A tensor of a file that is made by hand: name, dims from the innermost, type, offset.
type Entry<'a> = (&'a str, &'a [u64], u32, u64);

fn file(metadata: &[(&str, u32, Vec<u8>)], tensors: &[Entry<'_>], data: usize) -> Vec<u8> {
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let mut file = b"GGUF".to_vec();
    file.extend(3u32.to_le_bytes());
    file.extend((tensors.len() as u64).to_le_bytes());
    file.extend((metadata.len() as u64).to_le_bytes());
    for (key, kind, value) in metadata {
        file.extend([text(key), kind.to_le_bytes().to_vec(), value.clone()].concat());
    }
    for (name, dims, kind, offset) in tensors {
        file.extend(text(name));
        file.extend((dims.len() as u32).to_le_bytes());
        dims.iter().for_each(|dim| file.extend(dim.to_le_bytes()));
        file.extend(kind.to_le_bytes());
        file.extend(offset.to_le_bytes());
    }
    file.resize(file.len().next_multiple_of(32) + data, 1);
    file
}

/// Why a file is refused.
#[track_caller]
fn refused(bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.gguf");
    std::fs::write(&path, bytes).expect("room for a file");
    open(&path).expect_err("it lies").to_string()
}

#[test]
fn files_that_lie_are_refused_by_name() {
    let f32s: Entry<'_> = ("a", &[8], 0, 0);
    let cases: [(&[Entry<'_>], usize, &str); 13] = [
        (&[f32s], 31, "`a` of 32 bytes does not fit"),
        (&[f32s, ("b", &[8], 0, 64)], 64, "`b` of 32 bytes does not fit"),
        (&[("a", &[16], 0, 0), ("b", &[8], 0, 32)], 256, "`a` and `b` lie in the same place"),
        (&[f32s, ("b", &[8], 0, 0)], 256, "lie in the same place"),
        (&[("a", &[8], 0, 4)], 256, "begins at 4, which is no multiple of 32"),
        (&[("a", &[1 << 40, 1 << 40], 0, 0)], 256, "more bytes than can be counted"),
        (&[("a", &[8], 0, u64::MAX - 31)], 256, "does not fit"),
        (&[("a", &[8], 10, 0)], 256, "written as q2_k"),
        (&[("a", &[8], 99, 0)], 256, "written as type 99"),
        (&[("a", &[128, 2], 12, 0)], 256, "rows of 128 values"),
        (&[f32s, ("a", &[8], 0, 32)], 256, "tensor `a` twice"),
        (&[("a", &[0, 2], 3, 0)], 256, "`a` of shape [2, 0] has no values"),
        (&[("a", &[32, 0], 2, 0)], 256, "`a` of shape [0, 32] has no values"),
    ];
    for (tensors, data, words) in cases {
        let said = refused(&file(&[], tensors, data));
        assert!(said.contains(words), "{words}: {said}");
    }
    let nine: [u64; 9] = [1; 9];
    assert!(refused(&file(&[], &[("a", &nine, 0, 0)], 64)).contains("9 dimensions"));
    let alignment = |kind, value| vec![("general.alignment", kind, value)];
    for wrong in [0u32, 3, 1 << 30] {
        let own = alignment(4, wrong.to_le_bytes().to_vec());
        assert!(refused(&file(&own, &[f32s], 64)).contains("general.alignment"), "{wrong}");
    }
    let shape = |sizes: &[i32]| {
        let head = [5u32.to_le_bytes().to_vec(), (sizes.len() as u64).to_le_bytes().to_vec()];
        let sizes = sizes.iter().flat_map(|size| size.to_le_bytes());
        vec![("comfy.gguf.orig_shape.a", 9, head.concat().into_iter().chain(sizes).collect())]
    };
    for wrong in [&[3, 3][..], &[-2, -4], &[8, 1], &[]] {
        assert!(
            refused(&file(&shape(wrong), &[f32s], 64)).contains("which cannot be"),
            "{wrong:?}"
        );
    }
    let whole = file(&shape(&[1, 1, 8]), &[f32s], 32);
    assert_eq!(GgufHeader::parse(&whole).unwrap().tensors[0].shape, [1, 1, 8]);
}

/// No beginning of a file is a file, and a file that was cut off says so.
#[test]
fn torn_files_are_refused() {
    let whole = std::fs::read(golden("wan.gguf")).unwrap();
    let header = GgufHeader::parse(&whole).unwrap();
    assert!(header.check(whole.len()).is_ok());
    for length in (0..whole.len()).step_by(37).chain([whole.len() - 1]) {
        let own = GgufHeader::parse(&whole[..length]).and_then(|own| own.check(length));
        // Behind the last tensor there may be some bytes that stand for nothing.
        assert!(own.is_err() || length + 32 > whole.len(), "{length} of {} bytes", whole.len());
    }
}

/// Parameters are found by whatever asks for their values, too.
#[test]
fn values_of_blocks_are_widened_for_whoever_asks() {
    let store = open(&golden("blocks.gguf")).unwrap();
    let own = store.values("q6_k.weight", &[2, 256]).unwrap();
    let expected: &Parameter = store.get("q6_k.values").unwrap();
    assert_eq!(bits(&own), bits(&expected.values));
    assert!(matches!(store.values("q6_k.weight", &[256, 2]), Err(nn::Error::Misshapen { .. })));
}
