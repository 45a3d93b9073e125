const interruptedCode = 130;

const [name, ...words] = process.argv.slice(2);
if (name === "chat") {
  const [{ runChat }, { readEnvFile }] = await Promise.all([
    import("./chat/chat.ts"),
    import("./config.ts"),
  ]);
  await runChat(words, { ...(await readEnvFile(".env")).values, ...process.env });
}

// The reader of our output has left.
process.stdout.on("error", () => process.exit(interruptedCode));

// The conversation needs nothing of this, and starts at once.
const { runCommand } = await import("./commands.ts");
const code = await runCommand(process.argv.slice(2));
// What a pipe has not taken yet would be lost.
process.stdout.write("", () => process.exit(code));
