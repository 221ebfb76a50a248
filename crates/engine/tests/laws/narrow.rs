//! Layouts of networks whose matrices are held in fewer bits: blocks of a GGUF, and bytes.
//!
//! Blocks stand for numbers, and a part of a matrix is cut anywhere in them: what ranks make of blocks is what they make of
//! the numbers, to the bit. Bytes round a row of inputs by its largest value: whoever shares tokens rounds alike, and whoever
//! would see a part of the row is refused.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

use burn::tensor::{DType, Device};
use engine::{Pipeline, Request, Setup};
use kernels::BlockType;
use nn::{GgufTensor, GgufType, GgufWriter, Precision, Quantization, Store};
use parallel::Plan;

use crate::asked::{HEADS, Model, folders, of_folder, requests};
use crate::cases::{self, Case, Law, layout};
use crate::runs::{STEPS, apart, check_request, latents};

/// The width of a head with which a row of a matrix is a whole number of blocks: three of them, so that two tensor ranks cut
/// in the middle of one and three cut between them.
const HEAD_WIDTH: usize = 3 * 32 / HEADS;

/// One model of each family that has a folder.
const MODELS: [&str; 3] = ["wan-tiny", "pixart-tiny", "ltx2-tiny"];

fn wide_models() -> Vec<Model> {
    let temporary = Arc::new(tempfile::tempdir().unwrap());
    let named = |path: &Path| MODELS.iter().any(|own| path.ends_with(own));
    let all = folders().into_iter().filter(|path| named(path));
    let all: Vec<Model> = all.map(|path| of_folder(&path, HEAD_WIDTH, &temporary)).collect();
    assert_eq!(all.len(), MODELS.len());
    all
}

/// Writes a store as a GGUF: matrices in blocks where their rows are whole ones. How many are.
fn write(store: &Store, path: &Path) -> usize {
    let kind = BlockType::Q8_0;
    let is_blocks = |shape: &[usize]| shape.len() == 2 && shape[1].is_multiple_of(kind.length());
    let tensors: Vec<GgufTensor> = store
        .iter()
        .map(|(name, own)| {
            let to = if is_blocks(&own.shape) { GgufType::Blocks(kind) } else { GgufType::F32 };
            GgufTensor::new(name, to, own.shape.clone())
        })
        .collect();
    let to = BufWriter::new(File::create(path).unwrap());
    let mut writer = GgufWriter::begin(to, Default::default(), &tensors).unwrap();
    for (_, own) in store.iter() {
        let data = own.values.clone().cast(DType::F32).into_data();
        match is_blocks(&own.shape) {
            true => writer.put(&kind.nearest(data.as_slice::<f32>().unwrap()).unwrap()).unwrap(),
            false => writer.put(data.as_bytes()).unwrap(),
        }
    }
    store.iter().filter(|(_, own)| is_blocks(&own.shape)).count()
}

/// The same model with other parameters.
fn with(model: &Model, what: &str, store: Store) -> Model {
    let mut pipeline = model.pipeline.clone();
    pipeline.replace_transformer(0, store.clone()).unwrap();
    let (description, folder) = (model.description.clone(), model.folder.clone());
    Model { name: format!("{} in {what}", model.name), description, store, pipeline, folder }
}

#[test]
fn blocks_are_the_numbers_they_stand_for_on_ranks() {
    let folder = tempfile::tempdir().unwrap();
    for model in wide_models() {
        let path = folder.path().join(format!("{}.gguf", model.name));
        assert!(write(&model.store, &path) > 20, "{}: few matrices are in blocks", model.name);
        let blocks = Store::open(&[path], Precision::Stored, &Device::flex()).unwrap();
        assert!(blocks.quantized_matrices().count() > 20, "{}", model.name);
        let mut floats = Store::new("what blocks stand for");
        for name in blocks.names() {
            floats.insert(name, blocks.as_floats(name).unwrap());
        }
        let [blocks, floats] =
            [("blocks", blocks), ("floats", floats)].map(|(what, store)| with(&model, what, store));
        let (what, request) = requests(&model.description).swap_remove(0);
        let request = Request { steps: Some(STEPS), ..request };
        let pairs = cases::pairs();
        let all = [&cases::ALONE[..], &cases::WHOLE_SEQUENCES[..1], &cases::PATCHES[..2], &pairs];
        let all = all.concat();
        for case in &all {
            let [own, stands] =
                [&blocks, &floats].map(|own| latents(own, &request, &layout(*case)));
            assert!(own == stands, "{} by {case:?}: not what its blocks stand for", blocks.name);
        }
        check_request((&blocks, what), &request, &all);
    }
}

/// So many times the distance of bytes from f32, on one rank, may a ring be from one rank: it adds in another order, and a
/// last bit may decide how a token is rounded.
const TIMES: f64 = 3.0;

#[test]
fn bytes_are_shared_by_tokens_and_not_by_matrices() {
    let alone = layout(([1; 6], None, None, Law::Bits));
    for model in wide_models() {
        let (what, request) = requests(&model.description).swap_remove(0);
        let request = Request { steps: Some(STEPS), ..request };
        let full = latents(&model, &request, &alone);
        let (kept, path) = model.folder.clone().unwrap();
        let setup = Setup { quantization: Some(Quantization::Int8), ..Setup::new(&Device::flex()) };
        let mut pipeline = Pipeline::open(&path, &setup).unwrap();
        pipeline.open_all().unwrap();
        let name = format!("{} in bytes", model.name);
        let bytes = Model { name, pipeline, folder: Some((kept, path)), ..model };
        let one = latents(&bytes, &request, &alone);
        let own = apart(&one, &full);
        assert!(own > 1e-5, "{}: nothing is rounded", bytes.name);
        let workload = bytes.pipeline.workload(&request).unwrap();
        let (mut refused, mut rings) = (0, 0);
        let all: Vec<Case> =
            [&cases::ALONE[..], &cases::WHOLE_SEQUENCES[..2], &cases::PATCHES, &cases::pairs()]
                .concat();
        for case in all {
            let [tensor, _, ring, ..] = case.0;
            if tensor > 1 {
                let refusal = Plan::new(&layout(case), &workload).unwrap_err();
                assert_eq!(refusal.axis, "tensor", "{}, {case:?}", bytes.name);
                assert!(refusal.reason.contains("matrices in bytes"), "{refusal}");
                refused += 1;
            } else if ring > 1 {
                let patches = if matches!(case.3, Law::StaleRounding) { case.1 } else { None };
                let want = layout(([1; 6], patches, case.2, case.3));
                let want = latents(&bytes, &request, &want);
                let off = apart(&latents(&bytes, &request, &layout(case)), &want);
                assert!(off <= TIMES * own, "{} by {case:?}: {off:e}, {own:e}", bytes.name);
                rings += 1;
            } else {
                check_request((&bytes, what), &request, &[case]);
            }
        }
        assert!(refused > 4 && rings > 4, "{refused} refused, {rings} rings");
    }
}
