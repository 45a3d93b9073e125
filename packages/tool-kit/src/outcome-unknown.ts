/**
 * Thrown by a handler that cannot say whether what it was asked to do has happened: the other side
 * was asked, and never answered. A `once` call then counts as unknown, any other as failed.
 */
export class OutcomeUnknownError extends Error {
  override readonly name = "OutcomeUnknownError";
}
