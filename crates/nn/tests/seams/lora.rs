//! Low-rank changes: merged, beside, and learning beside.

use burn::tensor::{DType, Device, Tensor};
use kernels::Activation;

use nn::{
    Adapted, Adapter, Adapters, Change, LowRank, Merge, Parameter, Patch, Recording, Store, Weights,
};

fn tensor<const D: usize>(shape: [usize; D], seed: usize) -> Tensor<D> {
    let elements = shape.iter().product::<usize>();
    let value = |index: usize| ((index * 37 + seed * 11) % 23) as f32 / 7.0 - 1.5;
    let values: Vec<f32> = (0..elements).map(value).collect();
    Tensor::<1>::from_floats(&values[..], &Device::flex()).reshape(shape)
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.cast(DType::F32).into_data().try_to_vec().expect("f32")
}

fn store() -> Store {
    let mut store = Store::new("the test");
    store.insert("layer.weight", Parameter::new(tensor([5, 3], 1)));
    store.insert("layer.bias", Parameter::new(tensor([5], 2)));
    store.insert("kernel.weight", Parameter::new(tensor([4, 3, 2], 3)));
    store.insert("half.weight", Parameter::new(tensor([5, 3], 4).cast(DType::BF16)));
    store
}

fn low_rank([outputs, inputs]: [usize; 2], seed: usize, scale: f32) -> LowRank {
    LowRank { down: tensor([2, inputs], seed), up: tensor([outputs, 2], seed + 1), scale }
}

fn patch(parameter: &str, change: Change) -> Patch {
    Patch { parameter: parameter.to_owned(), change }
}

fn patches() -> Vec<Patch> {
    vec![
        patch("layer.weight", Change::LowRank(low_rank([5, 3], 5, 0.5))),
        patch("kernel.weight", Change::LowRank(low_rank([4, 6], 7, -1.0))),
        patch("layer.bias", Change::Dense(tensor([5], 8), 2.0)),
        patch("layer.weight", Change::LowRank(low_rank([5, 3], 9, 3.0))),
        patch("half.weight", Change::LowRank(low_rank([5, 3], 10, 1.0))),
    ]
}

/// `W + sum of s B A` by hand, in f64.
fn by_hand(weight: &[f32], changes: &[LowRank], inputs: usize) -> Vec<f32> {
    let mut out: Vec<f64> = weight.iter().copied().map(f64::from).collect();
    for change in changes {
        let (down, up) = (values(change.down.clone()), values(change.up.clone()));
        for (index, value) in out.iter_mut().enumerate() {
            let (row, column) = (index / inputs, index % inputs);
            let product: f64 = (0..2)
                .map(|k| f64::from(up[row * 2 + k]) * f64::from(down[k * inputs + column]))
                .sum();
            *value += f64::from(change.scale) * product;
        }
    }
    out.into_iter().map(|value| value as f32).collect()
}

#[track_caller]
fn close(ours: &[f32], wanted: &[f32], bound: f32) {
    assert_eq!(ours.len(), wanted.len());
    for (ours, wanted) in ours.iter().zip(wanted) {
        assert!((ours - wanted).abs() <= bound, "{ours} instead of {wanted}");
    }
}

#[test]
fn merged_changes_add_up_and_touch_nothing_else() {
    let (before, mut store) = (store(), store());
    assert!(store.adapt(patches(), Merge::Into).expect("they fit").is_empty());
    let get = |store: &Store, name| values(store.get(name).expect(name).values.clone());
    let twice = [low_rank([5, 3], 5, 0.5), low_rank([5, 3], 9, 3.0)];
    let wanted = by_hand(&get(&before, "layer.weight"), &twice, 3);
    close(&get(&store, "layer.weight"), &wanted, 1e-5);
    let wanted = by_hand(&get(&before, "kernel.weight"), &[low_rank([4, 6], 7, -1.0)], 6);
    close(&get(&store, "kernel.weight"), &wanted, 1e-5);
    assert_eq!(store.get("kernel.weight").expect("it is there").shape, [4, 3, 2]);
    let shifted = values(before.get("layer.bias").expect("a bias").values.clone());
    let shifted: Vec<f32> =
        shifted.iter().zip(values(tensor([5], 8))).map(|(b, d)| b + 2.0 * d).collect();
    close(&get(&store, "layer.bias"), &shifted, 1e-6);
    let half = store.get("half.weight").expect("it is there");
    assert_eq!(half.values.dtype(), DType::BF16);
    let wanted = by_hand(&get(&before, "half.weight"), &[low_rank([5, 3], 10, 1.0)], 3);
    close(&get(&store, "half.weight"), &wanted, 0.03);
}

#[test]
fn beside_is_the_same_layer() {
    let (mut merged, mut kept) = (store(), store());
    merged.adapt(patches(), Merge::Into).expect("they fit");
    let adapters = kept.adapt(patches(), Merge::Beside).expect("they fit");
    let untouched = values(store().get("layer.weight").expect("there").values.clone());
    assert_eq!(values(kept.get("layer.weight").expect("there").values.clone()), untouched);
    let adapted = Adapted::new(&kept, adapters);
    let (adapted, merged) = (Weights::new(&adapted), Weights::new(&merged));
    let x = tensor([2, 7, 3], 12);
    for activation in [Activation::Identity, Activation::Silu] {
        let apply = |weights: &Weights<'_>| {
            let layer = weights.linear("layer", 3, 5).expect("a layer");
            values(layer.apply_with(x.clone(), activation).expect("it is applied"))
        };
        close(&apply(&adapted), &apply(&merged), 1e-4);
    }
    // Asked for bare, it is merged too; so is what is no matrix.
    let bare = |weights: &Weights<'_>| {
        let matrix: Tensor<2> = weights.stored("layer.weight", [5, 3]).expect("values");
        let kernel: Tensor<3> = weights.stored("kernel.weight", [4, 3, 2]).expect("values");
        [values(matrix), values(kernel)]
    };
    assert_eq!(bare(&adapted), bare(&merged));
}

/// Named changes beside every kind of layer that has a matrix or a kernel: what learns is a leaf of the
/// graph, and the layer is the one whose change is merged.
#[test]
fn changes_that_learn_stand_beside_every_kind_of_layer() {
    let mut base = Store::new("the test");
    let shapes: [(&str, &[usize]); 5] = [
        ("linear", &[5, 3]),
        ("patch", &[4, 3, 1, 2]),
        ("space", &[2, 3, 3, 3]),
        ("time", &[2, 3, 3, 1, 1]),
        ("table", &[6, 3]),
    ];
    let mut adapters = Adapters::default();
    for (index, (layer, shape)) in shapes.into_iter().enumerate() {
        let elements = shape.iter().product();
        let parameter =
            |values: Tensor<1>, shape: &[usize]| Parameter { values, shape: shape.to_vec() };
        base.insert(format!("{layer}.weight"), parameter(tensor([elements], index), shape));
        base.insert(format!("{layer}.bias"), Parameter::new(tensor([shape[0]], index + 7)));
        let [down, up] = LowRank::names(layer);
        let inputs = elements / shape[0];
        base.insert(down, Parameter::new(tensor([2, inputs], index + 1)));
        base.insert(up, Parameter::new(tensor([shape[0], 2], index + 2)));
        adapters.push(format!("{layer}.weight"), Adapter::named(layer, 2, 0.5, None));
    }
    let mut merged = base.clone();
    merged.merge_pairs(0.5).expect("they fit");
    assert_eq!(merged.iter().count(), 10, "the pairs are gone");
    let adapted = Adapted::new(&base, adapters);
    let trainable = |name: &str| name.contains("lora");
    let recording = Recording::new(&adapted, &trainable);
    let (ours, wanted) = (run(&Weights::new(&recording)), run(&Weights::new(&merged)));
    for ((layer, _), (ours, wanted)) in shapes.iter().zip(ours.iter().zip(&wanted)) {
        close(&values(ours.clone().inner()), &values(wanted.clone()), 1e-4);
        let gradients = recording.gradients(&kernels::sum(ours.clone()).backward());
        assert_eq!(gradients.keys().collect::<Vec<_>>(), LowRank::names(layer).each_ref());
    }
}

/// What each layer makes of something, flat.
fn run(weights: &Weights<'_>) -> [Tensor<1>; 5] {
    let flat = |x: Tensor<2>| {
        let elements = x.shape().num_elements();
        x.reshape([elements])
    };
    let linear = weights.linear("linear", 3, 5).expect("a layer");
    let patch = weights.patch_projection("patch", &[4, 3, 1, 2]).expect("a layer");
    let space = weights.convolution("space", [3, 2], 3).expect("a layer");
    let time = weights.convolution3d("time", [3, 2], [3, 1, 1]).expect("a layer");
    let table = weights.embedding("table", 6, 3).expect("a layer");
    let picture = space.apply(tensor([1, 4, 4, 3], 3), &kernels::Convolution::padded(1));
    let frames = [tensor([2, 2, 3], 4), tensor([2, 2, 3], 5)];
    let clip = kernels::CausalFrames { earlier: &[], now: &frames };
    let frames = Tensor::cat(time.apply(clip, 1, None).expect("the frames are whole"), 0);
    let index = Tensor::from_data([[1_i64, 5]], &Device::flex());
    [
        flat(linear.apply(tensor([2, 3], 1)).expect("it is applied")),
        flat(patch.apply(tensor([2, 6], 2)).expect("it is applied")),
        flat(picture.expect("the picture is whole").reshape([16, 2])),
        flat(frames.reshape([8, 2])),
        flat(table.apply(index).reshape([2, 3])),
    ]
}

#[test]
fn pairs_that_do_not_fit_leave_the_store_alone() {
    for (spoil, words) in [("a.lora_B.weight", "a.lora_B.weight"), ("a.weight", "`a.weight`")] {
        let mut store = Store::new("the test");
        store.insert("a.weight", Parameter::new(tensor([5, 3], 1)));
        store.insert("a.lora_A.weight", Parameter::new(tensor([2, 3], 2)));
        store.insert("a.lora_B.weight", Parameter::new(tensor([5, 2], 3)));
        store.remove(spoil);
        let error = store.merge_pairs(1.0).expect_err(spoil).to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!(store.iter().count(), 2);
    }
}

#[test]
fn changes_that_do_not_fit_leave_the_store_alone() {
    let refused = [
        ("layer.weigth", Change::LowRank(low_rank([5, 3], 1, 1.0)), "`layer.weight`"),
        ("layer.weight", Change::LowRank(low_rank([5, 4], 1, 1.0)), "[5, 2] x [2, 4]"),
        ("layer.bias", Change::Dense(tensor([4], 1), 1.0), "[4]"),
    ];
    for (name, change, words) in refused {
        let mut store = store();
        let before = values(store.get("layer.weight").expect("there").values.clone());
        let mut patches = patches();
        patches.push(patch(name, change));
        let error = store.adapt(patches, Merge::Into).expect_err(name).to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!(values(store.get("layer.weight").expect("there").values.clone()), before);
    }
}
