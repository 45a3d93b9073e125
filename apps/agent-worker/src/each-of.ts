/**
 * Does the same for one after the other. What fails for one keeps no other from its turn; in the end it
 * rejects with the first failure.
 */
export async function eachOf<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  const failures: unknown[] = [];
  for (const item of items) await work(item).catch((error: unknown) => failures.push(error));
  if (failures.length > 0) throw failures[0];
}
