@rem The scripts of package.json begin with the shell's "exec", which the shells of Windows do not have: they find this.
@echo Larkline runs on Linux and macOS: on Windows, run "wsl --install" once, open the folder in WSL and start it there.
@exit /b 1
