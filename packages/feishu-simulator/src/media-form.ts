import type { SimFile } from "./media-store.ts";
import type { ApiCallContext } from "./platform.ts";
import { PlatformError } from "./platform-error.ts";

/** A text field of an upload; absent or a file: undefined. */
export function formText(call: ApiCallContext, field: string): string | undefined {
  const value = call.form?.get(field);
  return typeof value === "string" && value !== "" ? value : undefined;
}

/** The file of an upload; refuses with 234001, 234010 (nothing in it) or 234006 (too large). */
export async function uploadedFile(
  call: ApiCallContext,
  field: string,
  limitBytes: number,
): Promise<SimFile & { bytes: Uint8Array; name: string }> {
  const file = call.form?.get(field);
  if (file === undefined || file === null || typeof file === "string") {
    throw new PlatformError(234001, `Invalid request param: ${field} must be a file of a multipart form`);
  }
  if (file.size === 0) throw new PlatformError(234010, "File's size can't be 0.");
  if (file.size > limitBytes) throw new PlatformError(234006, "The file size exceed the max value.");
  return { bytes: new Uint8Array(await file.arrayBuffer()), name: file.name };
}
