export { freePort } from "./free-port.ts";
export { startRedis, type TestRedis } from "./redis.ts";
