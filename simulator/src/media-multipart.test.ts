import { expect, test } from "vitest";
import { parseMultipart } from "./media.ts";

const type = 'multipart/form-data; boundary="b-1"';

function form(...parts: (string | Buffer)[]): Buffer {
  return Buffer.concat(parts.map((part) => (typeof part === "string" ? Buffer.from(part) : part)));
}

test("fields keep their bytes, with and without a file name, whatever they hold", () => {
  const bytes = Buffer.from([0, 13, 10, 45, 45, 98, 255, 13, 10]);
  const parts = parseMultipart(
    form(
      '--b-1\r\nContent-Disposition: form-data; name="kind"\r\n\r\nmessage\r\n',
      '--b-1\r\ncontent-disposition: form-data; name="a"\r\nContent-Type: application/octet-stream\r\n\r\n',
      bytes,
      '\r\n--b-1\r\nContent-Disposition: form-data; name="b"; filename="报告.pdf"\r\n\r\n\r\n--b-1--\r\n',
    ),
    type,
  );
  expect(parts?.get("kind")?.bytes.toString()).toBe("message");
  expect(parts?.get("a")).toEqual({ bytes });
  expect(parts?.get("b")).toEqual({ bytes: Buffer.alloc(0), fileName: "报告.pdf" });
});

test.each([
  ["no boundary in the header", "--b-1--\r\n", "multipart/form-data"],
  ["another boundary", "--c\r\n\r\n--c--", type],
  ["a part that is cut off", '--b-1\r\nContent-Disposition: form-data; name="a"\r\n\r\nhal', type],
  ["a part without a name", "--b-1\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b-1--", type],
  ["a part without an end of its head", "--b-1\r\nx\r\n--b-1--", type],
  ["nothing", "", type],
])("%s is no form", (_name, body, contentType) => {
  expect(parseMultipart(Buffer.from(body), contentType)).toBeUndefined();
});

test("a form without fields is one", () => {
  expect(parseMultipart(Buffer.from("--b-1--\r\n"), type)?.size).toBe(0);
});
