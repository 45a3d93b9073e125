import { expect, test } from "vitest";
import { encryptEvent, signEvent } from "./delivery.ts";

test("encryption matches the vector with a fixed IV", () => {
  const plain = '{"challenge":"abc","token":"vtoken","type":"url_verification"}';
  expect(encryptEvent("test key", plain, Buffer.alloc(16, 1))).toBe(
    "AQEBAQEBAQEBAQEBAQEBAQPhoKKTEFj3aVICLPNFRWri6ydmoy/WU4shKdrADgFGJfLqnr9k2kysKSWnfM7sr7Zxl3KOHsSIDqiNTiTORSM=",
  );
});

test("the signature matches the vector", () => {
  const body = '{"encrypt":"P37w+VZImNgPEO1RBhJ6RtKl7n6zymIbEG1pReEzghk="}';
  expect(
    signEvent({ timestamp: "1700000000", nonce: "nonce123", encryptKey: "test key", body }),
  ).toBe("669e3ed5328644f71370e3249f96af0fd17e5ed4d7b178c44f11f7997339e344");
});
