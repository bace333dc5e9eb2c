; Installs Intermission for one user, without elevation. packaging/release calls makensis:
;   makensis -WX -DVERSION=1.2.3 -DNUMBERS=1.2.3.0 -DFILES=directory -DOUT=setup.exe -DTARGET=amd64-unicode
; Switches of the installer: /S silent, /SERVICE=1 (or 0) with the background service or
; without, /D=path last. Silent means without, where it wasn't there before.
Unicode true
Target ${TARGET}
SetCompressor /SOLID lzma
SetDateSave off ; two builds have the same bytes
RequestExecutionLevel user
ManifestDPIAware true

!define NAME "Intermission"
!define UNINSTALL "Software\Microsoft\Windows\CurrentVersion\Uninstall\${NAME}"
Name "${NAME}"
BrandingText "${NAME} ${VERSION}"
OutFile "${OUT}"
InstallDir "$LOCALAPPDATA\Programs\${NAME}"
InstallDirRegKey HKCU "${UNINSTALL}" "InstallLocation"

!include MUI2.nsh
!include FileFunc.nsh
!include LogicLib.nsh
!include StrFunc.nsh
!include WinMessages.nsh
${StrStr}
${UnStrRep}

VIProductVersion "${NUMBERS}"
VIAddVersionKey "ProductName" "${NAME}"
VIAddVersionKey "ProductVersion" "${VERSION}"
VIAddVersionKey "FileVersion" "${VERSION}"
VIAddVersionKey "FileDescription" "${NAME} Setup"
VIAddVersionKey "CompanyName" "The Intermission authors"
VIAddVersionKey "LegalCopyright" "MIT License"
VIAddVersionKey "Comments" "This build is not signed."

!define MUI_ICON "${FILES}/intermission.ico"
!define MUI_UNICON "${FILES}/intermission.ico"
!define MUI_WELCOMEPAGE_TEXT "Intermission keeps the OpenCode server running, and after a restart no AI session goes on until you say so.$\r$\n$\r$\nIt is installed for you alone; no administrator is needed.$\r$\n$\r$\nThis build is not signed, so Windows can't tell who made it: compare the file that you have downloaded with SHA256SUMS."
!define MUI_FINISHPAGE_RUN "$INSTDIR\intermission.exe"
!define MUI_FINISHPAGE_RUN_PARAMETERS "tray"
!define MUI_FINISHPAGE_RUN_TEXT "Show the tray now"
!insertmacro MUI_PAGE_WELCOME
!insertmacro MUI_PAGE_LICENSE "${FILES}/LICENSE.txt"
!insertmacro MUI_PAGE_COMPONENTS
!insertmacro MUI_PAGE_DIRECTORY
!insertmacro MUI_PAGE_INSTFILES
!insertmacro MUI_PAGE_FINISH
!insertmacro MUI_UNPAGE_CONFIRM
!insertmacro MUI_UNPAGE_INSTFILES
!insertmacro MUI_LANGUAGE "English"

Var HadTray
Var Moved

; A tray is found by the class of the window by which it hears of the session's end
; (platform/powerwindow_windows.go), and closes when its windows are asked to, which is
; what taskkill without /F does. A supervisor is left to "intermission service": it has
; its server to stop, or to leave to the next.
!macro CloseTrays
  StrCpy $HadTray 0
  StrCpy $3 0
  ${Do}
    FindWindow $1 "IntermissionTray"
    ${If} $1 == 0
      ${ExitDo}
    ${EndIf}
    StrCpy $HadTray 1
    System::Call 'user32::GetWindowThreadProcessId(p r1, *i .r2)'
    nsExec::ExecToLog '"$SYSDIR\taskkill.exe" /PID $2'
    Pop $2
    Sleep 250
    IntOp $3 $3 + 1
  ${LoopUntil} $3 >= 20
!macroend

Section "Intermission" Program
  SectionIn RO
  SetOutPath "$INSTDIR"
  !insertmacro CloseTrays
  ; Who runs can't be overwritten, but renamed. What earlier upgrades renamed goes once it has ended.
  Delete "$INSTDIR\intermission-*.old"
  StrCpy $Moved ""
  ${If} ${FileExists} "$INSTDIR\intermission.exe"
    ${GetTime} "" "L" $0 $1 $2 $3 $4 $5 $6
    StrCpy $Moved "$INSTDIR\intermission-$2$1$0$4$5$6.old"
    ClearErrors
    Rename "$INSTDIR\intermission.exe" "$Moved"
    ${If} ${Errors}
      SetErrorLevel 2
      Abort "cannot move the older intermission.exe out of the way: close what uses it, and try again"
    ${EndIf}
  ${EndIf}
  ClearErrors
  File "${FILES}/intermission.exe"
  ${If} ${Errors}
    ${If} $Moved != ""
      Rename "$Moved" "$INSTDIR\intermission.exe"
    ${EndIf}
    SetErrorLevel 2
    Abort "cannot write intermission.exe: is the disk full?"
  ${EndIf}
  File "${FILES}/intermission.ico"
  File "${FILES}/README.txt"
  File "${FILES}/LICENSE.txt"
  File "${FILES}/THIRD-PARTY-LICENSES.txt"
  File "${FILES}/CHANGELOG.md"
  WriteUninstaller "$INSTDIR\uninstall.exe"
  CreateShortcut "$SMPROGRAMS\${NAME}.lnk" "$INSTDIR\intermission.exe" "tray" "$INSTDIR\intermission.ico" 0 SW_SHOWMINIMIZED "" "Shows which AI sessions wait for your consent"
  WriteRegStr HKCU "${UNINSTALL}" "DisplayName" "${NAME}"
  WriteRegStr HKCU "${UNINSTALL}" "DisplayVersion" "${VERSION}"
  WriteRegStr HKCU "${UNINSTALL}" "Publisher" "The Intermission authors"
  WriteRegStr HKCU "${UNINSTALL}" "DisplayIcon" "$INSTDIR\intermission.ico"
  WriteRegStr HKCU "${UNINSTALL}" "InstallLocation" "$INSTDIR"
  WriteRegStr HKCU "${UNINSTALL}" "UninstallString" '"$INSTDIR\uninstall.exe"'
  WriteRegStr HKCU "${UNINSTALL}" "QuietUninstallString" '"$INSTDIR\uninstall.exe" /S'
  WriteRegDWORD HKCU "${UNINSTALL}" "NoModify" 1
  WriteRegDWORD HKCU "${UNINSTALL}" "NoRepair" 1
  ${GetSize} "$INSTDIR" "/S=0K" $0 $1 $2
  WriteRegDWORD HKCU "${UNINSTALL}" "EstimatedSize" $0
  Call AddToPath
SectionEnd

Section "Run in the background, from each logon on" Service
  DetailPrint "intermission service install"
  nsExec::ExecToLog '"$INSTDIR\intermission.exe" service install'
  Pop $0
  ${If} $0 != 0
    SetErrorLevel 3
    DetailPrint "The service isn't installed. The program is: in a terminal, run intermission service install"
    ${IfNot} ${Silent}
      MessageBox MB_ICONEXCLAMATION "The background service couldn't be installed; the details say why.$\r$\nThe program is installed. To try again, run in a terminal:$\r$\n$\r$\nintermission service install"
    ${EndIf}
  ${EndIf}
SectionEnd

; The new tray, in place of the one that was closed.
Section "-tray"
  ${If} $HadTray == 1
    Exec '"$INSTDIR\intermission.exe" tray'
  ${EndIf}
SectionEnd

!insertmacro MUI_FUNCTION_DESCRIPTION_BEGIN
  !insertmacro MUI_DESCRIPTION_TEXT ${Program} "The program, on your PATH, and its tray in the Start menu."
  !insertmacro MUI_DESCRIPTION_TEXT ${Service} "The supervisor starts now and at each logon: intermission service install"
!insertmacro MUI_FUNCTION_DESCRIPTION_END

; An upgrade keeps the service as it was; otherwise /SERVICE decides, else whether somebody is asked.
Function .onInit
  ${GetParameters} $0
  ClearErrors
  ${GetOptions} $0 "/SERVICE=" $1
  ${If} ${Errors}
    StrCpy $1 "1"
    ${If} ${Silent}
      StrCpy $1 "0"
    ${EndIf}
    ${If} ${FileExists} "$INSTDIR\intermission.exe"
      nsExec::ExecToStack '"$INSTDIR\intermission.exe" service status --json'
      Pop $2
      Pop $3
      ${StrStr} $4 $3 '"installed":true'
      ${If} $4 != ""
        StrCpy $1 "1"
      ${Else}
        StrCpy $1 "0"
      ${EndIf}
    ${EndIf}
  ${EndIf}
  ${If} $1 == "1"
    SectionSetFlags ${Service} ${SF_SELECTED}
  ${Else}
    SectionSetFlags ${Service} 0
  ${EndIf}
FunctionEnd

; A value longer than NSIS can hold must not be written back cut: reading it is an
; error then, as it is where there is none. Listing the values tells these apart.
Function AddToPath
  StrCpy $0 0
  StrCpy $2 ""
  ${Do}
    EnumRegValue $1 HKCU "Environment" $0
    ${If} $1 == "Path"
      StrCpy $2 "there"
    ${EndIf}
    IntOp $0 $0 + 1
  ${LoopUntil} $1 == ""
  ClearErrors
  ReadRegStr $3 HKCU "Environment" "Path"
  ${If} ${Errors}
  ${AndIf} $2 == "there"
    DetailPrint "Your PATH is too long to be changed here. To call intermission by its name, add to it: $INSTDIR"
    Return
  ${EndIf}
  ${StrStr} $4 ";$3;" ";$INSTDIR;"
  ${If} $4 != ""
    Return
  ${EndIf}
  StrLen $5 "$3;$INSTDIR"
  IntOp $6 ${NSIS_MAX_STRLEN} - 2
  ${If} $5 >= $6
    DetailPrint "Your PATH is too long to be changed here. To call intermission by its name, add to it: $INSTDIR"
    Return
  ${EndIf}
  ${If} $3 == ""
    WriteRegExpandStr HKCU "Environment" "Path" "$INSTDIR"
  ${Else}
    WriteRegExpandStr HKCU "Environment" "Path" "$3;$INSTDIR"
  ${EndIf}
  SendMessage ${HWND_BROADCAST} ${WM_SETTINGCHANGE} 0 "STR:Environment" /TIMEOUT=5000
FunctionEnd

Section "Uninstall"
  ; First, while the program is there: it stops in order, and what is at work is suspended.
  ; With nothing installed it fails, and that is no fault here.
  DetailPrint "intermission service uninstall"
  nsExec::ExecToLog '"$INSTDIR\intermission.exe" service uninstall'
  Pop $0
  nsExec::ExecToLog '"$INSTDIR\intermission.exe" tray --autostart off'
  Pop $0
  !insertmacro CloseTrays
  ; What still runs can be renamed only; then it stays behind, and does nothing.
  StrCpy $1 0
  ${Do}
    ClearErrors
    Delete "$INSTDIR\intermission.exe"
    ${IfNot} ${Errors}
      ${ExitDo}
    ${EndIf}
    Sleep 250
    IntOp $1 $1 + 1
  ${LoopUntil} $1 >= 20
  ${If} ${FileExists} "$INSTDIR\intermission.exe"
    SetErrorLevel 2
    Abort "intermission.exe is still running, which intermission status tells of: end it, and uninstall again"
  ${EndIf}
  Delete "$INSTDIR\intermission-*.old"
  Delete "$INSTDIR\intermission.ico"
  Delete "$INSTDIR\README.txt"
  Delete "$INSTDIR\LICENSE.txt"
  Delete "$INSTDIR\THIRD-PARTY-LICENSES.txt"
  Delete "$INSTDIR\CHANGELOG.md"
  Delete "$INSTDIR\uninstall.exe"
  RMDir "$INSTDIR" ; only when nothing else is in it
  Delete "$SMPROGRAMS\${NAME}.lnk"
  DeleteRegKey HKCU "${UNINSTALL}"
  ClearErrors
  ReadRegStr $3 HKCU "Environment" "Path"
  ${IfNot} ${Errors}
    ${UnStrRep} $4 ";$3;" ";$INSTDIR;" ";"
    ${If} $4 != ";$3;"
      StrCpy $4 $4 "" 1
      StrLen $5 $4
      IntOp $5 $5 - 1
      ${If} $5 > 0
        StrCpy $4 $4 $5
        WriteRegExpandStr HKCU "Environment" "Path" $4
      ${Else}
        DeleteRegValue HKCU "Environment" "Path"
      ${EndIf}
      SendMessage ${HWND_BROADCAST} ${WM_SETTINGCHANGE} 0 "STR:Environment" /TIMEOUT=5000
    ${EndIf}
  ${EndIf}
SectionEnd
