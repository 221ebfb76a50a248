//! The parameters of a network that has learnt nothing yet.

use burn::tensor::{Device, Tensor, TensorData};
use diffusion::Draw;
use nn::{Network, Store};

use crate::error::Result;
use crate::lora::matches;

/// New parameters for a network: matrices uniform in `+-1 / sqrt(inputs)`, norms 1, biases 0, and zeros
/// wherever a layer or parameter matches one of `zero`. A parameter depends on its name and the draw
/// alone.
///
/// # Errors
/// The network does not declare its parameters.
pub fn initial(network: &dyn Network, zero: &[&str], draw: Draw, device: &Device) -> Result<Store> {
    let fill = |name: &str, shape: &[usize]| {
        let count = shape.iter().product::<usize>();
        let layer = name.rsplit_once('.').map_or("", |(layer, _)| layer);
        let is_zero = zero.iter().any(|pattern| matches(pattern, layer) || matches(pattern, name));
        let values = match shape {
            _ if is_zero || name.ends_with(".bias") => vec![0.0; count],
            [_] => vec![1.0; count],
            [_, inner @ ..] => {
                let bound = 1.0 / (inner.iter().product::<usize>() as f32).sqrt();
                let unit = draw.stream(name).uniform(0..count);
                unit.into_iter().map(|unit| (2.0 * unit - 1.0) * bound).collect()
            }
            [] => vec![0.0; count],
        };
        Tensor::from_data(TensorData::new(values, [count]), device)
    };
    Ok(Store::declared(|weights| network.declare(weights), fill)?)
}
