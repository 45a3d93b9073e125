import { RedisBlobStore } from "@larkline/store";
import { openTestStores } from "@larkline/store/testing";
import { expect, it } from "vitest";
import { createFileStore } from "./call.ts";

it("tells a tool what to do when nothing can be stored, and the operator why", async () => {
  const errors: unknown[] = [];
  const blobs = new RedisBlobStore({ ...openTestStores(), maxBytes: 3 });
  const storeFile = createFileStore({ blobs, onError: (error) => errors.push(error) });
  await expect(storeFile(Buffer.from("four"), { mediaType: "image/png" })).rejects.toThrow(
    /^the file could not be stored; /,
  );
  expect(errors).toMatchObject([{ message: expect.stringContaining("4 bytes, more than the 3") }]);
});
