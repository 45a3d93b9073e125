/** A message that cannot be built, or has no form as text. */
export class MessageError extends Error {
  override name = "MessageError";
}
