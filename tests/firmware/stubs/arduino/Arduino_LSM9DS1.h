/* The IMU of a Nano 33 BLE Sense, as its library declares it. For compiling only. */
class LSM9DS1Class {
public:
    int begin();
    int readAcceleration(float &x, float &y, float &z);
    int readGyroscope(float &x, float &y, float &z);
};
extern LSM9DS1Class IMU;
