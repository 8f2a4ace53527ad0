// A layer by the bindings that bindgen makes of tconv.h: ones through a kernel of ones by stride 2.
#![allow(non_camel_case_types, non_upper_case_globals, non_snake_case, dead_code)]

mod bindings;
use bindings::*;
use std::mem::{size_of, MaybeUninit};

fn tensor(data: &mut [f32]) -> tconv_tensor {
    tconv_tensor { data: data.as_mut_ptr().cast(), dtype: tconv_dtype_TCONV_F32, location: tconv_location_TCONV_LOCATION_HOST }
}

fn main() {
    let (mut src, mut weights, mut dst) = (vec![1f32; 4], vec![1f32; 4], vec![0f32; 16]);
    let mut issue = MaybeUninit::<tconv_issue>::zeroed();
    let status = unsafe {
        let mut desc = MaybeUninit::<tconv_desc>::zeroed();
        tconv_desc_init_sized(desc.as_mut_ptr(), size_of::<tconv_desc>() as _);
        let mut desc = desc.assume_init();
        (desc.batch, desc.in_channels, desc.in_h, desc.in_w, desc.out_channels) = (1, 1, 2, 2, 1);
        (desc.kernel_h, desc.kernel_w, desc.stride_h, desc.stride_w) = (2, 2, 2, 2);
        desc.dtype = tconv_dtype_TCONV_F32;
        let (x, w, y) = (tensor(&mut src), tensor(&mut weights), tensor(&mut dst));
        tconv_conv_transpose2d(&desc, std::ptr::null(), &x, &w, std::ptr::null(), &y, issue.as_mut_ptr())
    };
    assert_eq!(status, tconv_status_TCONV_SUCCESS);
    assert_eq!(dst, vec![1f32; 16]);
}
