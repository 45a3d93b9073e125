import type { SimFile } from "./media-store.ts";
import type { ApiCallContext } from "./platform.ts";
import { PlatformError } from "./platform-error.ts";

/** A text field of an upload; undefined when it is absent or empty. */
export function formText(call: ApiCallContext, field: string): string | undefined {
  return call.form?.get(field)?.bytes.toString("utf8") || undefined;
}

/** The file of an upload; refuses with 234001 (absent), 234010 (nothing in it) or 234006 (too large). */
export function uploadedFile(call: ApiCallContext, field: string, limitBytes: number): SimFile & { bytes: Uint8Array } {
  const part = call.form?.get(field);
  if (part === undefined) {
    throw new PlatformError(234001, `Invalid request param: ${field} must be a file of a multipart form`);
  }
  if (part.bytes.length === 0) throw new PlatformError(234010, "File's size can't be 0.");
  if (part.bytes.length > limitBytes) throw new PlatformError(234006, "The file size exceed the max value.");
  return { bytes: new Uint8Array(part.bytes), ...(part.fileName === undefined ? {} : { name: part.fileName }) };
}
