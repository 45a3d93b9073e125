if (process.argv[2] === "--sandbox-host") {
  const { runSandboxHost } = await import("./sandbox-host/sandbox-host.ts");
  await runSandboxHost();
} else {
  const [{ runRunner }, { toolProgram }] = await Promise.all([import("@larkline/runner"), import("./app.ts")]);
  await runRunner(toolProgram);
}
