//! Numbers that look random and are a function of a name and an index alone.

use burn::tensor::{Device, Tensor, TensorData};

/// `count` numbers in -1..1.
pub fn numbers(name: &str, count: usize) -> Vec<f32> {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
    let number = |index: usize| {
        let mut x = seed.wrapping_add((index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for shift in [30, 27] {
            x = (x ^ (x >> shift)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        }
        (x >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    };
    (0..count).map(number).collect()
}

/// A tensor of [`numbers`].
pub fn tensor<const D: usize>(name: &str, shape: [usize; D]) -> Tensor<D> {
    let values = numbers(name, shape.iter().product());
    Tensor::from_data(TensorData::new(values, shape), &Device::flex())
}

/// A parameter: [`numbers`] of the size that keeps activations near 1.
pub fn parameter(name: &str, shape: &[usize]) -> Tensor<1> {
    let inputs = shape[1..].iter().product::<usize>().max(4);
    tensor(name, [shape.iter().product()]) * (1.7 / (inputs as f32).sqrt())
}

/// The elements, bit by bit.
pub fn bits<const D: usize>(tensor: &Tensor<D>) -> Vec<u32> {
    values(tensor).into_iter().map(f32::to_bits).collect()
}

/// The elements.
pub fn values<const D: usize>(tensor: &Tensor<D>) -> Vec<f32> {
    let data = tensor.clone().inner().into_data();
    // As they lie there, unless they are of another type.
    data.as_slice::<f32>().map_or_else(|_| data.iter::<f32>().collect(), <[f32]>::to_vec)
}
