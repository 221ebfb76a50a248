//! Devices by name.

use burn::tensor::Device;
#[cfg(any(feature = "metal", feature = "vulkan", feature = "webgpu"))]
use burn::tensor::DeviceKind;

use crate::failure::{Failure, Outcome};

/// The cargo features, each of which is a kind of device.
const FEATURES: [&str; 5] = ["cuda", "rocm", "metal", "vulkan", "webgpu"];

/// The device a user means.
///
/// # Errors
/// This binary does not have it; the message names the cargo feature that would.
pub(crate) fn parse(name: &str) -> Outcome<Device> {
    let (kind, index) = match name.split_once(':') {
        Some((kind, index)) => (kind, index.parse::<usize>().ok()),
        None => (name, Some(0)),
    };
    let Some(index) = index else {
        return Err(Failure::Refused(format!(
            "--device {name}: what follows the colon is not a number"
        )));
    };
    match kind {
        "cpu" if index == 0 => Ok(Device::flex()),
        #[cfg(feature = "cuda")]
        "cuda" => Ok(Device::cuda(index)),
        #[cfg(feature = "rocm")]
        "rocm" => Ok(Device::rocm(index)),
        "metal" | "vulkan" | "webgpu" if index != 0 => Err(Failure::Refused(format!(
            "--device {name}: {kind} chooses its device itself; leave the number out"
        ))),
        #[cfg(feature = "metal")]
        "metal" => Ok(Device::metal(DeviceKind::DefaultDevice)),
        #[cfg(feature = "vulkan")]
        "vulkan" => Ok(Device::vulkan(DeviceKind::DefaultDevice)),
        // Natively this is wgpu; the backend that is named so serves browsers only.
        #[cfg(feature = "webgpu")]
        "webgpu" => Ok(Device::wgpu(DeviceKind::DefaultDevice)),
        _ if FEATURES.contains(&kind) => Err(Failure::Refused(format!(
            "--device {name}: this binary was built without it; build with `--features {kind}`"
        ))),
        _ => Err(Failure::Refused(format!(
            "--device {name}: there is no such device; cpu is one, cuda:0, rocm:0, metal, vulkan and webgpu are others"
        ))),
    }
}
