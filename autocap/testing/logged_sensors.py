"""Sensors as logs of real cards show them: with coloured noise, a wandering clock, quanta and slow responses.

Those of `autocap.devices.model.sensor.PRESETS` are idealised: white noise, regular updates. Numbers here: the logs of
"Accurate and Convenient Energy Measurements for GPUs", SC24, arXiv 2312.02741, measured again, and public logs of
training jobs on TITAN X, H100 and laptop cards. TITAN X and laptop have no log of constant load: their noise is taken
to be usual. What a log shows of the jitter of an update, 1.5 to 3 ms, is mostly the reader's: the sensors' own is as
large as the beats of a 20 ms wave in the logs are blurred.
"""

from dataclasses import replace

from autocap.devices.model.sensor import SensorModel

_AT_LIMIT = 0.015  # 0.8 to 2.4 % where cards regulate
_AVERAGING = SensorModel(
    update_s=0.100, window_s=1.0, update_jitter=0.0008, phase_jitter_s=0.001, limit_noise=_AT_LIMIT, quantum_w=0.01
)

LOGGED = {
    "titan-x": SensorModel(
        update_s=0.020,
        window_s=0.002,
        response_s=0.110,
        noise=0.002,
        noise_correlation=0.8,
        limit_noise=_AT_LIMIT,
        quantum_w=0.01,
    ),
    "k40m": SensorModel(
        update_s=0.015,
        window_s=0.002,
        response_s=0.053,
        noise=0.0006,
        noise_correlation=0.8,
        quantum_w=0.1,
    ),
    # Its beats with a 20 ms wave are too blurred to be followed.
    "v100-logged": SensorModel(
        update_s=0.020,
        window_s=0.010,
        update_jitter=0.05,
        noise=0.002,
        noise_correlation=0.7,
        limit_noise=_AT_LIMIT,
        quantum_w=0.09,
    ),
    # Its phase wanders by 16 ms in 180 s: 1,780 intervals, each off by 0.38 ms.
    "a100-logged": SensorModel(
        update_s=0.10115,
        window_s=0.025,
        update_jitter=0.0038,
        phase_jitter_s=0.0005,
        noise=0.0030,
        noise_correlation=0.79,
        limit_noise=_AT_LIMIT,
        quantum_w=0.01,
    ),
    "rtx-3090-logged": replace(_AVERAGING, update_s=0.09997, window_s=0.100, noise=0.0016, noise_correlation=0.96),
    "rtx-4090-logged": replace(_AVERAGING, window_s=0.110, noise=0.0004, noise_correlation=0.53),
    "a5000": replace(_AVERAGING, noise=0.0004, noise_correlation=0.95),
    "h100-average": replace(_AVERAGING, noise=0.0002, noise_correlation=0.87, limit_noise=0.018),
    # 439 to 554 ms between readings.
    "laptop": SensorModel(
        update_s=0.515,
        window_s=0.100,
        update_jitter=0.02,
        phase_jitter_s=0.015,
        noise=0.002,
        noise_correlation=0.5,
        quantum_w=0.01,
    ),
}
