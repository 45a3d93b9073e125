import "vitest";

declare module "vitest" {
  interface ProvidedContext {
    /** Address of the Redis server of this test run. */
    redisUrl: string;
  }
}
