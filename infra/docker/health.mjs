// Whether the app in this container is alive, for HEALTHCHECK.
const port = process.env.PORT;
try {
  const { ok } = await fetch(`http://127.0.0.1:${port}/health`, {
    signal: AbortSignal.timeout(4_000),
  });
  process.exitCode = ok ? 0 : 1;
} catch {
  process.exitCode = 1;
}
